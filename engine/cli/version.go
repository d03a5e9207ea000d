package cli

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) versionCommand() *cobra.Command {
	return a.command(&cobra.Command{
		Use:     "version",
		Short:   "Show the version of semel",
		Long:    "Show the version of semel, of Go, and the platform it was built for.\n\n" + exits(exitDone, exitUsage),
		Example: "  semel version\n  semel version --json",
		Args:    exactArgs(),
	}, func(context.Context, []string) error {
		v := versionOf()
		if a.json {
			return a.line(v)
		}
		a.printf("%s\n", v)
		return nil
	})
}

// version is what this binary is.
type version struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // of the source; "+changes" where files were changed after it
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (v version) String() string {
	if v.Revision != "" {
		return fmt.Sprintf("semel %s (%s) %s %s", v.Version, v.Revision, v.Go, v.Platform)
	}
	return fmt.Sprintf("semel %s %s %s", v.Version, v.Go, v.Platform)
}

// versionOf reads what the Go toolchain wrote into the binary.
func versionOf() version {
	v := version{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	changes := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			v.Revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			changes = "+changes"
		}
	}
	if v.Revision != "" {
		v.Revision += changes
	}
	return v
}
