package delivery

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// tailLines is how many lines at the end of a file are compared with what is to
// be appended. Those that a dead process has written without anybody knowing are
// among the events it had taken: this is twice that, for a process that dies while
// it sends again what the one before it had taken.
const tailLines = 2 * takeAhead * FileBatch

// tail is what stands at the end of a file.
type tail struct {
	ids   []string // of the events there
	whole int64    // bytes up to the end of its last whole line
	size  int64    // bytes of all
}

// readTail reads the last lines of a file.
func readTail(file *os.File, lines int) (tail, error) {
	info, err := file.Stat()
	if err != nil {
		return tail{}, err
	}
	t := tail{size: info.Size()}
	at, err := lastLines(file, t.size, lines)
	if err != nil {
		return tail{}, err
	}
	t.whole = at
	in := bufio.NewReader(io.NewSectionReader(file, at, t.size-at))
	for {
		line, err := in.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return tail{}, err
		}
		at += int64(len(line))
		// A power loss may leave zeros in the place of a part of the last batch:
		// all of what follows them was never synced either.
		if err == io.EOF || bytes.IndexByte(line, 0) >= 0 {
			return t, nil
		}
		if json.Valid(line) {
			t.whole = at
			t.ids = append(t.ids, lineID(line))
		}
	}
}

// lastLines is where the last lines of a file begin.
func lastLines(file io.ReaderAt, size int64, lines int) (int64, error) {
	block := make([]byte, 64<<10)
	for end := size; end > 0; {
		start := max(0, end-int64(len(block)))
		part := block[:end-start]
		if _, err := file.ReadAt(part, start); err != nil {
			return 0, err
		}
		for i := bytes.LastIndexByte(part, '\n'); i >= 0; i = bytes.LastIndexByte(part[:i], '\n') {
			if lines--; lines < 0 { // the first one found is the end of the last line
				return start + int64(i) + 1, nil
			}
		}
		end = start
	}
	return 0, nil
}

// lineHead is how each line of a File begins.
var lineHead = []byte(`{"id":"`)

// lineID is the id of an event's line; "" of another.
func lineID(line []byte) string {
	rest, ours := bytes.CutPrefix(line, lineHead)
	id, _, whole := bytes.Cut(rest, []byte(`"`))
	if !ours || !whole {
		return ""
	}
	return string(id)
}

// repair cuts off what stands behind the last whole line, if it can only be what
// is left of lines that were never acknowledged.
func (f *File) repair(file *os.File, t tail) error {
	if t.whole == t.size {
		return nil
	}
	torn := make([]byte, min(t.size-t.whole, 120))
	if _, err := file.ReadAt(torn, t.whole); err != nil {
		return err
	}
	n := min(len(torn), len(lineHead))
	ours := bytes.Equal(torn[:n], lineHead[:n]) || torn[0] == 0 && len(t.ids) > 0
	if !ours {
		return fmt.Errorf("%s does not end with an event: is it a file of something else? Move it away, or mend its end", f.path)
	}
	if err := errors.Join(file.Truncate(t.whole), file.Sync()); err != nil {
		return err
	}
	f.log.Warn("a torn line at the end of the file was cut off: its event was never acknowledged, and comes again",
		"file", f.path, "bytes", t.size-t.whole, "began", string(torn))
	return nil
}

// recall remembers the ids at the end of the file, and of full ones before it
// where it is short.
func (f *File) recall(ids []string) error {
	numbers, err := f.rotated()
	if err != nil {
		return err
	}
	for _, n := range slices.Backward(numbers) {
		if len(ids) >= tailLines {
			break
		}
		older, err := f.rotatedTail(n, tailLines-len(ids))
		if err != nil {
			return err
		}
		ids = append(ids, older...)
	}
	f.seen = make(map[string]bool, len(ids))
	for _, id := range ids {
		f.seen[id] = true
	}
	return nil
}

// rotatedTail reads the ids at the end of a full file.
func (f *File) rotatedTail(n, lines int) ([]string, error) {
	file, err := os.Open(f.rotatedName(n))
	if err != nil {
		return nil, err
	}
	t, err := readTail(file, lines)
	return t.ids, errors.Join(err, file.Close())
}
