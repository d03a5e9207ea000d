package intake

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// readAll opens a file of targets with a content, and writes each row as
// "line name=value …" or "line !reason"; an error that ends the reading stands
// last.
func readAll(t *testing.T, kind Kind, content string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "targets."+string(kind))
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	short := func(err error) string { return strings.ReplaceAll(err.Error(), path, "FILE") }
	r, err := Open(Spec{Kind: kind, Path: path})
	if err != nil {
		return []string{"open: " + short(err)}
	}
	defer r.Close() //nolint:errcheck // nothing was written
	var rows []string
	for {
		target, err := r.Next()
		if err == io.EOF {
			return rows
		}
		if bad, ok := errors.AsType[*RowError](err); ok {
			if bad.File != path {
				t.Errorf("RowError of file %q", bad.File)
			}
			rows = append(rows, fmt.Sprintf("%d !%s", bad.Line, bad.Reason))
			continue
		}
		if err != nil {
			return append(rows, short(err))
		}
		row := fmt.Sprint(target.Line)
		for _, v := range target.Vars {
			row += fmt.Sprintf(" %s=%q", v.Name, v.Value)
		}
		rows = append(rows, row)
	}
}

func TestReader(t *testing.T) {
	for _, test := range []struct {
		name    string
		kind    Kind
		content string
		want    []string
	}{
		{"csv", CSV, "sku,name\n1,a\n2,b\n", []string{`2 sku="1" name="a"`, `3 sku="2" name="b"`}},
		{"csv with mark and crlf", CSV, "\xEF\xBB\xBFsku , name\r\n1,a\r\n\r\n2,b", []string{`2 sku="1" name="a"`, `4 sku="2" name="b"`}},
		{"csv quoted", CSV, "sku,name\n\"1,\"\"x\"\"\",\"a\nb\"\n2,é\n", []string{`2 sku="1,\"x\"" name="a\nb"`, `4 sku="2" name="é"`}},
		{"csv bad rows", CSV, "sku,name\n1\n2,b,c\n3,\"x\"y\n4,a\"b\n\xff,x\n5,ok\n", []string{
			"2 !has 1 fields, the header 2", "3 !has 3 fields, the header 2", `4 !extraneous or missing " in quoted-field`,
			`5 !bare " in non-quoted-field`, `6 !column "sku" is not UTF-8`, `7 sku="5" name="ok"`,
		}},
		{"csv open quote", CSV, "sku,name\n1,\"x\n2,b\n", []string{`2 !a quote is not closed: what follows it, up to line 3, was not read`}},
		{"csv empty values", CSV, "sku,name\n,\n", []string{`2 sku="" name=""`}},
		{"csv header only", CSV, "sku\n", nil},
		{"csv empty", CSV, "", []string{"open: reading targets FILE: there is no header row"}},
		{"csv header twice", CSV, "a,b,a\n", []string{`open: reading targets FILE: header row: column "a" is there twice`}},
		{"csv header blank", CSV, "a, ,b\n", []string{"open: reading targets FILE: header row: column 2 has no name"}},
		{"csv header bytes", CSV, "a,\xff\n", []string{"open: reading targets FILE: header row: column 2 is not UTF-8"}},
		{"csv semicolons", CSV, "a;b\n", []string{`open: reading targets FILE: header row: "a;b" is one column: columns are separated by commas`}},
		{"csv header quote", CSV, "a\"b\n", []string{`open: reading targets FILE: header row: parse error on line 1, column 2: bare " in non-quoted-field`}},
		{"utf-16", CSV, "\xFF\xFEa\x00", []string{"open: reading targets FILE: the file is UTF-16: save it as UTF-8"}},

		{"jsonl", JSONL, "\xEF\xBB\xBF{\"b\":\"x\",\"a\":1.50,\"c\":true,\"d\":null,\"e\":1e400}\r\n\n {\"a\":\"\\u00e9\"} ", []string{
			`1 b="x" a="1.50" c="true" e="1e400"`, `3 a="é"`,
		}},
		{"jsonl big number", JSONL, `{"a":12345678901234567890}`, []string{`1 a="12345678901234567890"`}},
		{"jsonl empty object", JSONL, "{}", []string{"1"}},
		{"jsonl bad rows", JSONL, strings.Join([]string{
			`[1]`, `"x"`, `{"a":1`, `{"a":[1]}`, `{"a":{"b":1}}`, `{"a":1,"a":2}`, `{"a":1}{"b":2}`, `{"a":1} x`, `{a:1}`, "{\"a\":\"\xff\"}", `{"a"}`, `{"a":}`, `{"a":"ok"}`,
		}, "\n"), []string{
			"1 !is not a JSON object", "2 !is not a JSON object", "3 !is not a whole JSON object",
			`4 !value of "a" is nested: only text, numbers and true or false make variables`,
			`5 !value of "a" is nested: only text, numbers and true or false make variables`,
			`6 !key "a" is there twice`, "7 !has more than one JSON object", "8 !has more than one JSON object", "9 !is not a whole JSON object",
			"10 !is not UTF-8", "11 !is not a whole JSON object", "12 !is not a whole JSON object", `13 a="ok"`,
		}},

		{"txt", TXT, "\xEF\xBB\xBFhttps://example.com/1\r\n\n  # comment\n\thttps://example.com/2#x \n\xff\nnot checked here", []string{
			`1 url="https://example.com/1"`, `4 url="https://example.com/2#x"`, "5 !is not UTF-8", `6 url="not checked here"`,
		}},
		{"txt long line", TXT, strings.Repeat("x", maxRowBytes+1) + "\nhttps://example.com/2\n", []string{
			"1 !row of more than 1048576 bytes", `2 url="https://example.com/2"`,
		}},
		{"txt empty", TXT, "", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, readAll(t, test.kind, test.content)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestRowTooLong: a quote that is never closed ends the reading early, not at
// the end of memory.
func TestRowTooLong(t *testing.T) {
	rows := readAll(t, CSV, "a\n1\n\""+strings.Repeat("x\n", 2<<20))
	want := []string{`2 a="1"`, "reading targets FILE: row of more than 1048576 bytes: is a quote not closed?"}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Error(diff)
	}
}

func TestReaderVars(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"a.csv": "x,y\n", "a.txt": "", "a.jsonl": "{\"x\":1}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string][]string{"a.csv": {"x", "y"}, "a.txt": {"url"}, "a.jsonl": nil} {
		kind, ok := KindOf(name)
		if !ok {
			t.Fatalf("%s has no kind", name)
		}
		r, err := Open(Spec{Kind: kind, Path: filepath.Join(dir, name)})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, r.Vars()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"a.xlsx", "csv", "a.csv.gz", ""} {
		if kind, ok := KindOf(name); ok {
			t.Errorf("%q is of kind %q", name, kind)
		}
	}
}

func TestOpenFaults(t *testing.T) {
	if _, err := Open(Spec{Kind: TXT, Path: filepath.Join(t.TempDir(), "none.txt")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Open of no file = %v", err)
	}
	r, err := Open(Spec{Kind: TXT, Path: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() //nolint:errcheck // nothing was written
	if _, err := r.Next(); err == nil || err == io.EOF {
		t.Errorf("Next of a folder = %v", err)
	}
}

func TestInline(t *testing.T) {
	targets := []Target{{Vars: Vars{{"a", "1"}}, Line: 4}, {Vars: Vars{{"a", "2"}}, Line: 5}}
	r, err := Open(Spec{Targets: targets})
	if err != nil {
		t.Fatal(err)
	}
	var got []Target
	for {
		target, err := r.Next()
		if err == io.EOF {
			break
		}
		got = append(got, target)
	}
	if diff := cmp.Diff(targets, got); diff != "" {
		t.Error(diff)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// TestReaderMemory: the heap does not grow with the file.
func TestReaderMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "big.csv")
	line := strings.Repeat("1234567,", 9) + "x\n"
	if err := os.WriteFile(path, []byte("a,b,c,d,e,f,g,h,i,j\n"+strings.Repeat(line, 200_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Open(Spec{Kind: CSV, Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() //nolint:errcheck // nothing was written
	var before, after runtime.MemStats
	rows := 0
	for ; ; rows++ {
		if rows == 1000 {
			runtime.GC()
			runtime.ReadMemStats(&before)
		}
		if rows == 199_000 {
			runtime.GC()
			runtime.ReadMemStats(&after)
		}
		if _, err := r.Next(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); rows != 200_000 || grown > 1<<20 {
		t.Errorf("%d rows grew the heap by %d bytes", rows, grown)
	}
}
