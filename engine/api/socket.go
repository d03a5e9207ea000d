package api

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// SocketSuffix is what the socket's name adds to that of its store.
const SocketSuffix = ".sock"

// Listen makes the socket of a store, mode 0600 and visible to nobody before it
// has that. It stands beside the store; where the system cannot have it there,
// which is mostly a path that is too long for a socket's, a file beside the
// store holds the name of one in the runtime folder. What an owner that is dead
// left there is replaced, so only who holds the store may call it. Closing the
// listener takes the names away.
func Listen(store string) (net.Listener, error) {
	name, err := socketName(store)
	if err != nil {
		return nil, fmt.Errorf("making the socket of store %s: %w", store, err)
	}
	if err := removeSocket(name); err != nil {
		return nil, fmt.Errorf("making the socket of store %s: %w", store, err)
	}
	l, err := listenBeside(name)
	if err != nil {
		var elsewhere error
		if l, elsewhere = listenElsewhere(name); elsewhere != nil {
			return nil, fmt.Errorf("making the socket of store %s: %w", store, errors.Join(err, elsewhere))
		}
	}
	return &socket{l, name}, nil
}

// socket is the listener of a store's socket.
type socket struct {
	net.Listener
	name string
}

// Close removes the names before it stops listening: whoever finds none opens
// the store, and waits there.
func (s *socket) Close() error {
	return errors.Join(removeSocket(s.name), s.Listener.Close())
}

// socketName is the same for all names that a store may have been given.
func socketName(store string) (string, error) {
	name, err := filepath.EvalSymlinks(store)
	if err != nil {
		return "", err
	}
	name, err = filepath.Abs(name)
	return name + SocketSuffix, err
}

// listenBeside binds in a folder that is the user's alone, and moves the socket
// out of it when its mode is right.
func listenBeside(name string) (l net.Listener, err error) {
	dir := name + ".new"
	if err := removeElsewhere(filepath.Join(dir, hidden)); err != nil { // of one that was killed just here
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.Remove(dir)) }()
	l, path, err := listenIn(dir)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(path, name); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// listenElsewhere binds in a new folder of the user's alone in the runtime
// folder, and writes the socket's name to the file name: with the file's own
// name, so that a copy of it beside a copy of the store leads nobody here.
func listenElsewhere(name string) (net.Listener, error) {
	const pattern = "semel-*"
	dir, err := os.MkdirTemp(os.Getenv("XDG_RUNTIME_DIR"), pattern)
	if err != nil { // it may be another user's, after su
		dir, err = os.MkdirTemp("", pattern)
	}
	if err != nil {
		return nil, err
	}
	l, path, err := listenIn(dir)
	if err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	if err := os.WriteFile(name, []byte(path+"\n"+name+"\n"), 0o600); err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(dir))
	}
	return l, nil
}

// hidden is the name of a socket in a folder of its own.
const hidden = "s"

// listenIn binds a socket of mode 0600 in a folder that nobody else may enter.
func listenIn(dir string) (l net.Listener, path string, err error) {
	path = filepath.Join(dir, hidden)
	if l, err = net.Listen("unix", path); err != nil {
		return nil, "", err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, "", errors.Join(err, l.Close())
	}
	return l, path, nil
}

// maxPointer is more than the two names in a file in a socket's place.
const maxPointer = 16 << 10

// socketPath is where the socket of that name really is: there, or where the
// file there says.
func socketPath(name string) (string, error) {
	info, err := os.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxPointer {
		return name, err
	}
	text, err := os.ReadFile(name)
	path, of, _ := strings.Cut(strings.TrimSuffix(string(text), "\n"), "\n")
	if err != nil || of != name {
		return name, err
	}
	return path, nil
}

// removeSocket removes a socket, and the file that names it where it is
// elsewhere. Nothing there is no error.
func removeSocket(name string) error {
	path, err := socketPath(name)
	if err != nil {
		return ignoreMissing(err)
	}
	if path != name {
		if err := removeElsewhere(path); err != nil {
			return err
		}
	}
	return ignoreMissing(os.Remove(name))
}

// removeElsewhere removes a socket with the folder that it has for itself.
// Anything but a socket is none of ours, and stays.
func removeElsewhere(path string) error {
	info, err := os.Lstat(path)
	if err == nil && (info.Mode().IsRegular() || info.IsDir()) {
		return nil
	}
	if err == nil {
		err = os.Remove(path)
	}
	if err := ignoreMissing(err); err != nil {
		return err
	}
	_ = os.Remove(filepath.Dir(path)) // it stays where it holds anything else, or is gone
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
