package config

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/google/go-cmp/cmp"
)

func TestScan(t *testing.T) {
	got := scan(`# comment = 1
a = 1 # b = 2
"q \"k" = 'its' # = 3
[t.u]
x = """
y = 1
\""" z = 2"""
w = '''
[v]'''
'l.i' . "t" = [ 1, [2,
  3], {k = 1,
  m.n = "]"} ]
d = 1979-05-27 07:32:00
[[arr]]
one = 1
[[arr.sub]]
[[arr]]
two = { three = {} }
[arr.map]
[t]
end = true`)
	want := map[string]int{
		"a": 2, `"q \"k"`: 3, "t": 20, "t.u": 4, "t.u.x": 5, "t.u.w": 8,
		`t.u."l.i"`: 10, `t.u."l.i".t`: 10, `t.u."l.i".t[0]`: 10, `t.u."l.i".t[1]`: 10, `t.u."l.i".t[1][0]`: 10, `t.u."l.i".t[1][1]`: 11,
		`t.u."l.i".t[2]`: 11, `t.u."l.i".t[2].k`: 11, `t.u."l.i".t[2].m`: 12, `t.u."l.i".t[2].m.n`: 12,
		"t.u.d": 13, "arr": 14, "arr[0]": 14, "arr[0].one": 15, "arr[0].sub": 16, "arr[0].sub[0]": 16,
		"arr[1]": 17, "arr[1].two": 18, "arr[1].two.three": 18, "arr[1].map": 19, "t.end": 21,
	}
	if diff := cmp.Diff(want, got.line); diff != "" {
		t.Error(diff)
	}
	inOrder := slices.SortedFunc(maps.Keys(got.order), func(a, b string) int { return got.order[a] - got.order[b] })
	if first := strings.Join(inOrder[:4], " "); first != `a "q \"k" t t.u` {
		t.Errorf("order begins with %s", first)
	}
}

// FuzzScan: reading ends on any text, and on TOML each key that the toml package
// reports has a line.
func FuzzScan(f *testing.F) {
	for _, seed := range []string{
		"a = 1", "[a.b]\nc = {d = [1, {e = 2}]}", "[[a]]\n[[a]]\n[a.b]\n", "x = \"\"\"\\\n  y\"\"\"\"\"\nz=1", "\"\\u00e9\" = 1", "a.'b.c'.d=''",
		"[[", "{", "=", "a = [", "a = {b", "'", "\"\\", "\xff", "\"\\e0\"=0",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		found := scan(text)
		var content map[string]any
		_, err := toml.Decode(text, &content)
		if err != nil {
			return
		}
		root := build("", "", 1, content, found)
		lines := 1 + strings.Count(text, "\n")
		var walk func(n *node)
		walk = func(n *node) {
			line, ok := found.line[n.path]
			if n.path != "" && (!ok || line < 1 || line > lines) {
				t.Errorf("%s has line %d (%t) in %q", n.path, line, ok, text)
			}
			for _, m := range slices.Concat(n.members, n.items) {
				walk(m)
			}
		}
		walk(root)
	})
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]string{
		"90s": "1m30s", "6h": "6h0m0s", "30d": "720h0m0s", "1d12h": "36h0m0s", "0s": "0s", "1.5h": "1h30m0s", "250ms": "250ms",
		"": "fault", "d": "fault", "1.5d": "fault", "-1d": "fault", "1d-2h": "fault", "99999d": "fault", "1d2d": "fault", "3": "fault", "1 h": "fault",
		"65535d2540000h": "fault",
	} {
		got := "fault"
		if d, err := parseDuration(text); err == nil {
			got = d.String()
		}
		if got != want {
			t.Errorf("parseDuration(%q) = %s, want %s", text, got, want)
		}
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"5MB": 5e6, "500kB": 5e5, "10 MB": 1e7, "1GiB": 1 << 30, "1.5KiB": 1536, "0.1kB": 100, "7B": 7, "2TB": 2e12, "0MB": 0,
		"": -1, "5": -1, "5mb": -1, "5KB": -1, "-5MB": -1, "5 000kB": -1, ".5MB": -1, "1e3MB": -1, "99999999TB": -1, "MB": -1,
	} {
		got, err := parseSize(text)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("parseSize(%q) = %d, want %d", text, got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"type", "url", "workers", "password", "password_template"}
	for word, want := range map[string]string{
		"tpye": "type", "types": "type", "ulr": "url", "uri": "url", "wrokers": "workers", "pasword": "password", "passwordtemplate": "password_template",
		"x": "", "zzzz": "", "": "",
	} {
		if got := nearest(word, known); got != want {
			t.Errorf("nearest(%q) = %q, want %q", word, got, want)
		}
	}
}
