package demo

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrForeignFolder: the folder holds something that is not the demo's.
var ErrForeignFolder = errors.New("folder is not empty and not the demo's own")

// folder is where the demo writes.
type folder string

func (f folder) config() string  { return filepath.Join(string(f), "semel.toml") }
func (f folder) store() string   { return filepath.Join(string(f), "semel.db") }
func (f folder) records() string { return filepath.Join(string(f), "records.jsonl") }
func (f folder) targets() string { return filepath.Join(string(f), "targets.csv") }

// check refuses a folder that is neither missing, empty nor the demo's own. It
// changes nothing. Error: ErrForeignFolder, and those of the file system.
func (f folder) check() error {
	entries, err := os.ReadDir(string(f))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("looking into the demo's folder: %w", err)
	case len(entries) == 0:
		return nil
	}
	if own, err := f.marked(); err != nil || !own {
		return fmt.Errorf("%w: %s has no semel.toml that begins as the demo's does", ErrForeignFolder, string(f))
	}
	return nil
}

// marked reports whether the folder has the demo's config.
func (f folder) marked() (bool, error) {
	file, err := os.Open(f.config())
	if err != nil {
		return false, err
	}
	defer file.Close()
	line, err := bufio.NewReaderSize(file, len(marker)+2).ReadSlice('\n')
	if err != nil {
		return false, err
	}
	return strings.TrimRight(string(line), "\r\n") == marker, nil
}

// write makes the folder, its config and its targets. The config comes first:
// it marks what follows as the demo's.
func (f folder) write(config string, pages int) error {
	if err := os.MkdirAll(string(f), 0o755); err != nil {
		return fmt.Errorf("making the demo's folder: %w", err)
	}
	var targets strings.Builder
	targets.WriteString("id\n")
	for n := 1; n <= pages; n++ {
		targets.WriteString(ID(n) + "\n")
	}
	if err := replaceFile(f.config(), config); err != nil {
		return err
	}
	return replaceFile(f.targets(), targets.String())
}

// replaceFile writes a file whole or not at all: half a config would make the
// folder a foreign one.
func replaceFile(path, content string) error {
	tmp := path + ".new"
	err := os.WriteFile(tmp, []byte(content), 0o644)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return fmt.Errorf("writing the demo's files: %w", errors.Join(err, ignoreMissing(os.Remove(tmp))))
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
