package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// arrows are the packages of this module that each package may import. Nothing
// points back: storage and parser know nobody, and each other least of all.
var arrows = map[string][]string{
	"semel":                     {"engine/cli"},
	"semel/engine/cli":          {"engine/api", "engine/demo", "engine", "engine/config", "engine/delivery", "engine/intake", "engine/fetch", "engine/proxy", "engine/scaffold", "storage", "parser", "failpoint"},
	"semel/engine/api":          {"engine", "engine/config", "engine/delivery", "engine/intake", "engine/fetch", "engine/proxy", "storage", "parser", "failpoint"},
	"semel/engine/demo":         {"engine", "engine/config", "engine/intake", "engine/gateway", "storage", "parser"},
	"semel/engine":              {"engine/address", "engine/broker", "engine/cron", "engine/delivery", "engine/retryafter", "engine/intake", "engine/fetch", "engine/proxy", "storage", "parser"},
	"semel/engine/simulation":   {}, // only tests, which may import all
	"semel/engine/config":       {"engine/address", "engine/broker", "engine/cron", "engine/delivery", "engine/intake", "engine/fetch", "engine/proxy", "storage", "parser"},
	"semel/engine/intake":       {"engine/cron", "storage", "parser"},
	"semel/engine/scaffold":     {"engine/intake", "parser"},
	"semel/engine/broker":       {},
	"semel/engine/brokertest":   {},
	"semel/engine/cron":         {},
	"semel/engine/fetch":        {"engine/address", "engine/proxy"},
	"semel/engine/proxy":        {"storage"},
	"semel/engine/delivery":     {"engine/address", "engine/broker", "engine/retryafter", "storage", "failpoint"},
	"semel/engine/address":      {},
	"semel/engine/retryafter":   {},
	"semel/engine/gateway":      {},
	"semel/storage":             {"failpoint"},
	"semel/storage/storagetest": {"storage"},
	"semel/parser":              {},
	"semel/failpoint":           {},
}

// owners are modules and packages that only one package may import.
var owners = map[string]string{
	"go.etcd.io/bbolt":            "semel/storage",
	"github.com/gocolly/colly":    "semel/engine/fetch",
	"github.com/BurntSushi/toml":  "semel/engine/config",
	"github.com/spf13/cobra":      "semel/engine/cli",
	"github.com/robfig/cron":      "semel/engine/cron",
	"github.com/itchyny/gojq":     "semel/parser",
	"github.com/shopspring/decim": "semel/parser",

	"github.com/standard-webhooks/standard-webhooks": "semel/engine/delivery",
	"github.com/nats-io/nats-server":                 "semel/engine/brokertest", // which only tests import: the program has none
}

// impure are imports that would give the parser a clock's randomness, a network
// or a disk.
var impure = []string{"net", "net/http", "os", "math/rand", "math/rand/v2", "crypto/rand"}

func TestLayout(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(string(out)) {
		names := strings.Fields(line)
		pkg, imports := names[0], names[1:]
		allowed, known := arrows[pkg]
		if !known {
			t.Errorf("package %s has no place in the layout", pkg)
		}
		seen++
		for _, imported := range imports {
			if own, ok := strings.CutPrefix(imported, "semel/"); ok && !slices.Contains(allowed, own) {
				t.Errorf("%s imports %s against the arrows", pkg, imported)
			}
			for module, owner := range owners {
				if strings.HasPrefix(imported, module) && pkg != owner {
					t.Errorf("%s imports %s, which is %s's alone", pkg, imported, owner)
				}
			}
			if pkg == "semel/parser" && slices.Contains(impure, imported) {
				t.Errorf("the parser imports %s", imported)
			}
		}
	}
	if seen != len(arrows) {
		t.Errorf("%d packages are there, the layout names %d", seen, len(arrows))
	}
}
