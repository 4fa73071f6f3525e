package lab

import (
	"fmt"
	"os"
	"path/filepath"

	"awarescale.dev/aware/test/machine"
)

const systemdProgram = "/lib/systemd/systemd"

// systemdTools are the programs of this host with which systemd is the machine's first process.
func systemdTools() []string {
	tools := []string{systemdProgram, "/usr/bin/systemctl"}
	// Newer versions start services by a program of its own.
	if executor := "/lib/systemd/systemd-executor"; exists(executor) {
		tools = append(tools, executor)
	}
	return tools
}

// fillSystemd makes systemd the first process, with the node as its one service.
func fillSystemd(root string) error {
	for name, content := range map[string]string{
		"lab.target": "[Unit]\nDescription=A node of AWARE's lab\nRequires=lab.service\n",
		// Its processes may make groups below its own. Containers stay when it ends: they are scopes
		// of their own.
		"lab.service": fmt.Sprintf(`[Unit]
Description=The node's components
DefaultDependencies=no

[Service]
ExecStart=%s/bin/init node
Restart=always
Delegate=yes
KillMode=process
TasksMax=infinity
OOMScoreAdjust=-999
StandardOutput=tty
StandardError=tty
TTYPath=/dev/console
`, machineDir),
	} {
		file := filepath.Join(root, "etc/systemd/system", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			return err
		}
	}
	for name, to := range map[string]string{
		machine.Init:                                  systemdProgram,
		"/etc/systemd/system/default.target":          "lab.target",
		"/etc/machine-id":                             "",
		"/etc/systemd/system/systemd-journald.socket": "/dev/null",
	} {
		if to == "" {
			if err := os.WriteFile(filepath.Join(root, name), []byte("1ab00000000000000000000000000001\n"), 0o444); err != nil {
				return err
			}
			continue
		}
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			return err
		}
	}
	return nil
}
