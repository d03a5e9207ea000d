package api

import (
	"net"
	"syscall"
)

// peerPID is the process that listens at a socket, also where it answers no
// more; 0: not known.
func peerPID(path string) int {
	c, err := net.Dial("unix", path)
	if err != nil {
		return 0
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) {
		if peer, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			pid = int(peer.Pid)
		}
	})
	return pid
}
