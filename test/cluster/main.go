// Command cluster runs a real Kubernetes on this machine, from Go modules, for tests:
//
//	go run ./test/cluster up                   # start; ten minutes for the first time, then seconds
//	go run ./test/cluster up --nodes 2         # and a second node: a virtual machine with cgroup v2
//	go run ./test/cluster status [--json]      # its node, components and pods
//	go run ./test/cluster load REF FILE...     # an image of static programs; the first is the entrypoint
//	go run ./test/cluster exec -- ctr version  # a program inside the lab's namespaces; --node NAME: there
//	export KUBECONFIG=$(go run ./test/cluster kubeconfig)
//	go run ./test/cluster down                 # stop, and remove all of it
//	go run ./test/cluster check-clean          # is anything left on the machine?
//	go run ./test/cluster build [GROUP...]     # only build what up would
//
// It needs root, Linux with cgroup v1 or v2, and a few Debian packages, which up
// installs if they are missing (--install=false: it names them instead). --name
// distinguishes several labs. See package lab for how it works and for what a test
// may rely on.
//
// Exit codes: 0 done; 1 failed, with the reason on standard error. check-clean
// exits with 1 when something is left, and lists it on standard output. exec has
// the exit code of its program.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"text/tabwriter"
	"time"

	"awarescale.dev/aware/test/cluster/lab"
	"awarescale.dev/aware/test/machine"
	"awarescale.dev/aware/test/machine/guest"
	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) == 3 && os.Args[1] == "init" {
		stop() // init handles its own signals
		if err := lab.Init(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// The same program runs the node in a virtual machine: as its first process, or as a service.
	if first := os.Getpid() == 1 && os.Args[0] == machine.Init; first || len(os.Args) == 2 && os.Args[1] == "node" {
		err := lab.RunNode()
		fmt.Fprintln(os.Stderr, "node:", err)
		if first {
			guest.End()
		}
		os.Exit(1)
	}
	if err := command().ExecuteContext(ctx); err != nil {
		if !errors.Is(err, errLeft) {
			fmt.Fprintln(os.Stderr, "cluster:", err)
		}
		os.Exit(1)
	}
}

// errLeft is the error of check-clean when something is left. The list is
// printed before.
var errLeft = errors.New("not clean")

func command() *cobra.Command {
	c := lab.Config{Log: os.Stderr}
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "A real Kubernetes on this machine, from Go modules",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&c.Name, "name", "default", "which lab")
	root.PersistentFlags().StringVar(&c.StateDir, "state", "",
		"folder of the lab's files (default <temporary folder>/aware-cluster/NAME)")
	root.PersistentFlags().StringVar(&c.CacheDir, "cache", "",
		"folder of the binaries (default ~/.cache/aware-cluster)")
	root.AddCommand(up(&c), down(&c), status(&c), load(&c), checkClean(), build(&c), kubeconfig(&c), exec(&c))
	return root
}

func up(c *lab.Config) *cobra.Command {
	var install bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start the lab, in the place of one that runs",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			begun := time.Now()
			if err := lab.Preflight(cmd.Context(), install); err != nil {
				return err
			}
			if c.Nodes > 1 {
				if err := lab.PreflightMachine(cmd.Context(), *c, install); err != nil {
					return err
				}
			}
			cluster, err := lab.Up(cmd.Context(), *c)
			if err != nil {
				return err
			}
			fmt.Fprintf(os.Stderr, "up in %v\n", time.Since(begun).Round(10*time.Millisecond))
			fmt.Printf("export KUBECONFIG=%s\n", cluster.Kubeconfig())
			return nil
		},
	}
	cmd.Flags().BoolVar(&install, "install", true, "install Debian packages that are missing")
	cmd.Flags().StringToStringVar(&c.NodeLabels, "node-labels", nil, "labels of the first node")
	cmd.Flags().IntVar(&c.Nodes, "nodes", 1, "1, or 2: the second is a virtual machine with cgroup v2")
	cmd.Flags().StringVar(&c.CgroupDriver, "cgroup-driver", "cgroupfs",
		"who makes the second node's control groups: cgroupfs or systemd")
	return cmd
}

func down(c *lab.Config) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop the lab and remove all that it made",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return lab.Down(cmd.Context(), *c) },
	}
}

func status(c *lab.Config) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the lab's node, components and pods",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cluster, err := lab.Attach(cmd.Context(), *c)
			if err != nil {
				return err
			}
			s, err := cluster.Status(cmd.Context())
			if asJSON {
				encoder := json.NewEncoder(os.Stdout)
				encoder.SetIndent("", "  ")
				return errors.Join(err, encoder.Encode(s))
			}
			ready := map[bool]string{true: "Ready", false: "not Ready"}
			fmt.Printf("lab %s, Kubernetes %s, up %s\nserver %s\nkubeconfig %s\nlogs %s\n\n",
				s.Name, s.Version, s.Uptime, s.Server, s.Kubeconfig, filepath.Join(s.StateDir, "log"))
			w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "NODE\tSTATE\tADDRESS")
			for _, n := range s.Nodes {
				fmt.Fprintf(w, "%s\t%s\t%s\n", n.Name, ready[n.Ready], n.Address)
			}
			fmt.Fprintln(w, "\nCOMPONENT\tSTATE\tFOR\tRESTARTS")
			for _, p := range s.Components {
				fmt.Fprintf(w, "%s\t%s\t%v\t%d\n",
					p.Name, p.State, time.Since(p.Since).Round(time.Second), p.Restarts)
			}
			fmt.Fprintln(w, "\nPOD\tPHASE\tADDRESS")
			for _, p := range s.Pods {
				fmt.Fprintf(w, "%s/%s\t%s\t%s\n", p.Namespace, p.Name, p.Phase, p.Address)
			}
			return errors.Join(err, w.Flush())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

func load(c *lab.Config) *cobra.Command {
	return &cobra.Command{
		Use:   "load REF FILE...",
		Short: "Make an image of static programs and give it to the lab",
		Args:  cobra.MinimumNArgs(2),
		Long: "Make an image of one layer that has each FILE as /<its name>, the first as entrypoint,\n" +
			"and give it to the lab's container runtime. Pods use it with imagePullPolicy: Never.",
		RunE: func(cmd *cobra.Command, args []string) error {
			cluster, err := lab.Attach(cmd.Context(), *c)
			if err != nil {
				return err
			}
			files := map[string]string{}
			for _, file := range args[1:] {
				files["/"+filepath.Base(file)] = file
			}
			return cluster.LoadImage(cmd.Context(), args[0], files, []string{"/" + filepath.Base(args[1])})
		},
	}
}

func checkClean() *cobra.Command {
	return &cobra.Command{
		Use:   "check-clean [NAME...]",
		Short: "List what these labs, or all, have on this machine; fail if there is anything",
		RunE: func(_ *cobra.Command, names []string) error {
			left, err := lab.CheckClean(names...)
			if err != nil {
				return err
			}
			for _, line := range left {
				fmt.Println(line)
			}
			if len(left) > 0 {
				return errLeft
			}
			fmt.Println("clean")
			return nil
		},
	}
}

func build(c *lab.Config) *cobra.Command {
	return &cobra.Command{
		Use:   "build [GROUP...]",
		Short: "Build the binaries, or some groups of them, that are not in the cache",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := lab.Preflight(cmd.Context(), true); err != nil {
				return err
			}
			return lab.Build(cmd.Context(), *c, args...)
		},
	}
}

func kubeconfig(c *lab.Config) *cobra.Command {
	return &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print the path of the administrator's kubeconfig",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cluster, err := lab.Attach(cmd.Context(), *c)
			if err != nil {
				return err
			}
			fmt.Println(cluster.Kubeconfig())
			return nil
		},
	}
}

func exec(c *lab.Config) *cobra.Command {
	var node string
	cmd := &cobra.Command{
		Use:   "exec -- COMMAND [ARGUMENT...]",
		Short: "Run a program inside the lab's namespaces, or on one of its nodes",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cluster, err := lab.Attach(cmd.Context(), *c)
			if err != nil {
				return err
			}
			if node == "" {
				node = cluster.Node()
			}
			on, err := cluster.NodeNamed(node)
			if err != nil {
				return err
			}
			return on.Exec(cmd.Context(), args[0], args[1:]...)
		},
	}
	cmd.Flags().StringVar(&node, "node", "", "which node (default the first)")
	return cmd
}
