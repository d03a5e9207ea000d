package delivery

import (
	"os/exec"
	"syscall"
)

// ownGroup keeps a Ctrl-C in the console from a command. What it has started is
// not killed with it.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
