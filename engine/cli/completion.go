package cli

import (
	"context"

	"github.com/spf13/cobra"

	"semel/engine/config"
)

// completeSource offers the config's sources to a shell.
func (a *app) completeSource(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	c, err := a.loadConfigWithoutSecrets()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp // a shell is no place to tell it
	}
	names := make([]string, len(c.Sources))
	for i := range c.Sources {
		names[i] = c.Sources[i].Name
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeSink offers the config's sinks to a shell.
func (a *app) completeSink(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	c, err := a.loadConfigWithoutSecrets()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return sinkNames(c), cobra.ShellCompDirectiveNoFileComp
}

func sinkNames(c *config.Config) []string {
	names := make([]string, len(c.Sinks))
	for i := range c.Sinks {
		names[i] = c.Sinks[i].Name
	}
	return names
}

// completeFlag offers the values of a command's flag to a shell.
func completeFlag(cmd *cobra.Command, flag string, values cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, values); err != nil {
		panic(err) // there is no such flag
	}
}

// completionCommand stands in for cobra's own, which takes a wrong shell for a
// wish to read its help.
func (a *app) completionCommand(root *cobra.Command) *cobra.Command {
	shells := map[string]func() error{
		"bash":       func() error { return root.GenBashCompletionV2(a.stdout, true) },
		"zsh":        func() error { return root.GenZshCompletion(a.stdout) },
		"fish":       func() error { return root.GenFishCompletion(a.stdout, true) },
		"powershell": func() error { return root.GenPowerShellCompletionWithDesc(a.stdout) },
	}
	return a.command(&cobra.Command{
		Use:       "completion {bash | zsh | fish | powershell}",
		Short:     "Print a completion script for a shell",
		Long:      "Print a script that completes semel's commands and flags in a shell.\n\n" + exits(exitDone, exitUsage),
		Example:   "  source <(semel completion bash)\n  semel completion zsh > \"${fpath[1]}/_semel\"",
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		Args:      exactArgs("SHELL"),
	}, func(_ context.Context, args []string) error {
		write := shells[args[0]]
		if write == nil {
			return usage("the shells are bash, zsh, fish, powershell", "unknown shell %q", args[0])
		}
		return write()
	})
}
