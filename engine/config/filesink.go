package config

import (
	"path/filepath"

	"semel/engine/delivery"
)

// fileSink reads the keys of type "file".
func fileSink(t *table, s *Sink, c *Config) {
	var rotate int64
	if n := t.get("rotate"); n == nil || n.scalar != "" {
		t.size("rotate", &rotate)
	}
	if t.get("path") == nil {
		t.l.fault(t.node, "path is missing")
	}
	if !t.filled("path", &s.Path) {
		return
	}
	s.Path = t.l.path(s.Path)
	for i := range c.Sinks {
		if samePath(c.Sinks[i].Path, s.Path) {
			t.l.wrong(t.get("path"), "is the file of sink.%s already", c.Sinks[i].Name)
		}
	}
	if samePath(s.Path, c.Store.Path) || samePath(s.Path, t.l.file) {
		t.l.wrong(t.get("path"), "is a file of semel's own")
	}
	s.needs = t.l.value(t.get("path"))
	s.Batch = delivery.FileBatch
	s.Transport = delivery.NewFile(s.Path, rotate)
}

// samePath reports whether two paths, of which the first may be none, are one.
func samePath(a, b string) bool {
	fullA, errA := filepath.Abs(a)
	fullB, errB := filepath.Abs(b)
	return a != "" && errA == nil && errB == nil && fullA == fullB
}
