package lab

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

// The shell of a machine is how the host runs programs there and reaches its sockets: a
// server of the SSH protocol that knows one key. It answers the requests that the lab needs: to
// run a program, and to connect to a Unix socket.

const (
	shellPort = 22
	// The files of the keys, in the folders pki.
	shellHostKey   = "shell-host.key"   // in the machine
	shellHostPub   = "shell-host.pub"   // here
	shellClientKey = "shell-client.key" // here
	shellClientPub = "shell-client.pub" // in the machine
)

// writeShellKeys makes the keys of both sides: here is the host's folder and there the machine's.
func writeShellKeys(here, there string) error {
	for _, key := range []struct{ private, public string }{
		{filepath.Join(there, shellHostKey), filepath.Join(here, shellHostPub)},
		{filepath.Join(here, shellClientKey), filepath.Join(there, shellClientPub)},
	} {
		public, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return err
		}
		block, err := ssh.MarshalPrivateKey(private, "")
		if err != nil {
			return err
		}
		of, err := ssh.NewPublicKey(public)
		if err != nil {
			return err
		}
		if err := os.WriteFile(key.private, pem.EncodeToMemory(block), 0o600); err != nil {
			return err
		}
		if err := os.WriteFile(key.public, ssh.MarshalAuthorizedKey(of), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func readPrivateKey(dir, file string) (ssh.Signer, error) {
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return nil, err
	}
	key, err := ssh.ParsePrivateKey(data)
	if err != nil {
		return nil, fmt.Errorf("reading the key %s: %w", file, err)
	}
	return key, nil
}

func readPublicKey(dir, file string) (ssh.PublicKey, error) {
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return nil, err
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey(data)
	if err != nil {
		return nil, fmt.Errorf("reading the key %s: %w", file, err)
	}
	return key, nil
}

// dialShell connects to a machine's shell with the keys in a folder.
func dialShell(ctx context.Context, at netip.AddrPort, keys string) (*ssh.Client, error) {
	own, err := readPrivateKey(keys, shellClientKey)
	if err != nil {
		return nil, err
	}
	host, err := readPublicKey(keys, shellHostPub)
	if err != nil {
		return nil, err
	}
	to := at.String()
	bounded, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(bounded, "tcp", to)
	if err != nil {
		return nil, fmt.Errorf("connecting to the shell of the machine: %w", err)
	}
	// The handshake knows no context.
	stop := context.AfterFunc(bounded, func() { conn.Close() })
	defer stop()
	c, channels, requests, err := ssh.NewClientConn(conn, to, &ssh.ClientConfig{
		User:            "root",
		Auth:            []ssh.AuthMethod{ssh.PublicKeys(own)},
		HostKeyCallback: ssh.FixedHostKey(host),
	})
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("connecting to the shell of the machine: %w", err)
	}
	return ssh.NewClient(c, channels, requests), nil
}

// runInShell runs a program in the machine with these files, and returns its exit code.
func runInShell(client *ssh.Client, in io.Reader, out, errs io.Writer, args ...string) (code int, err error) {
	session, err := client.NewSession()
	if err != nil {
		return -1, err
	}
	defer session.Close()
	session.Stdin, session.Stdout, session.Stderr = in, out, errs
	err = session.Run("exec " + quote(args))
	var exit *ssh.ExitError
	if errors.As(err, &exit) {
		return exit.ExitStatus(), nil
	}
	return 0, err
}

// quote makes a line for a shell that is these arguments.
func quote(args []string) string {
	var quoted []string
	for _, arg := range args {
		quoted = append(quoted, "'"+strings.ReplaceAll(arg, "'", `'\''`)+"'")
	}
	return strings.Join(quoted, " ")
}

// shell is the server, in the machine.
type shell struct {
	config *ssh.ServerConfig
	env    []string // of the programs
	// begin starts a program, and wait waits for its end: the first process of a system must
	// know which children are waited for.
	begin, wait func(*exec.Cmd) error
}

// newShell reads the keys of a folder.
func newShell(keys string) (*shell, error) {
	own, err := readPrivateKey(keys, shellHostKey)
	if err != nil {
		return nil, err
	}
	client, err := readPublicKey(keys, shellClientPub)
	if err != nil {
		return nil, err
	}
	config := &ssh.ServerConfig{
		PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if string(key.Marshal()) != string(client.Marshal()) {
				return nil, errors.New("this is not the lab's key")
			}
			return nil, nil
		},
	}
	config.AddHostKey(own)
	return &shell{config: config, begin: (*exec.Cmd).Start, wait: (*exec.Cmd).Wait}, nil
}

// serve answers until the listener is closed.
func (s *shell) serve(listener net.Listener) error {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go s.answer(conn)
	}
}

// answer serves one connection. What was started for it ends with it.
func (s *shell) answer(conn net.Conn) {
	defer conn.Close()
	_, channels, requests, err := ssh.NewServerConn(conn, s.config)
	if err != nil {
		return // a stranger
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go ssh.DiscardRequests(requests)
	for c := range channels {
		switch c.ChannelType() {
		case "session":
			go s.session(ctx, c)
		case "direct-streamlocal@openssh.com":
			go forwardSocket(c)
		default:
			_ = c.Reject(ssh.UnknownChannelType, "the lab needs no "+c.ChannelType())
		}
	}
}

// session runs the one program of a session.
func (s *shell) session(ctx context.Context, c ssh.NewChannel) {
	channel, requests, err := c.Accept()
	if err != nil {
		return
	}
	defer channel.Close()
	for r := range requests {
		var line struct{ Command string }
		if r.Type != "exec" || ssh.Unmarshal(r.Payload, &line) != nil {
			_ = r.Reply(false, nil)
			continue
		}
		_ = r.Reply(true, nil)
		ctx, cancel := context.WithCancel(ctx)
		go func() { // the client closes the session when it does not want the program any more
			ssh.DiscardRequests(requests)
			cancel()
		}()
		status := struct{ Code uint32 }{s.run(ctx, channel, line.Command)}
		_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(&status))
		cancel()
		return
	}
}

// run runs a line in sh(1), and returns its exit code: 128 and the signal's number after a signal, as
// sh does, and 127 when it did not start.
func (s *shell) run(ctx context.Context, channel ssh.Channel, line string) uint32 {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", line)
	cmd.Dir, cmd.Env = "/", s.env
	cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	// With Stdin, Wait would wait for the client's last byte.
	in, err := cmd.StdinPipe()
	if err == nil {
		err = s.begin(cmd)
	}
	if err != nil {
		fmt.Fprintln(channel.Stderr(), "shell:", err)
		return 127
	}
	go func() { _, _ = io.Copy(in, channel); in.Close() }()
	err = s.wait(cmd)
	if cmd.ProcessState == nil {
		fmt.Fprintln(channel.Stderr(), "shell:", err)
		return 127
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + uint32(status.Signal())
	}
	return uint32(cmd.ProcessState.ExitCode())
}

// forwardSocket connects the channel to a Unix socket.
func forwardSocket(c ssh.NewChannel) {
	var to struct {
		Path     string
		Reserved string
		Port     uint32
	}
	if err := ssh.Unmarshal(c.ExtraData(), &to); err != nil {
		_ = c.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	conn, err := net.Dial("unix", to.Path)
	if err != nil {
		_ = c.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	defer conn.Close()
	channel, requests, err := c.Accept()
	if err != nil {
		return
	}
	defer channel.Close()
	go ssh.DiscardRequests(requests)
	go func() { // one half closes after the other
		_, _ = io.Copy(conn, channel)
		_ = conn.(*net.UnixConn).CloseWrite()
	}()
	_, _ = io.Copy(channel, conn)
}
