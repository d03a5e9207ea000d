//go:build unix

package delivery

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// ownGroup gives a command a process group of its own, which is killed as a
// whole.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) {
			return os.ErrProcessDone
		}
		return err
	}
}
