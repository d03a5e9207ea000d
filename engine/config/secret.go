package config

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// redacted stands for a secret wherever one would be printed.
const redacted = "[secret]"

// literalSecret is the fault of a secret that stands in the file itself.
const literalSecret = `a secret is written as "env:NAME" or "file:PATH", never as it is`

// maxSecretBytes is far over any login, and keeps a wrong path from reading a
// large file.
const maxSecretBytes = 16 << 10

// secretKeys are the settings whose values are secrets.
var secretKeys = []string{"username", "password", "token", "secret", "credentials"}

// secretHeader is how request headers are called whose values are secrets.
var secretHeader = regexp.MustCompile(`(?i)auth|cookie|key|password|secret|token`)

// isSecretKey reports whether a key of the file, dotted, has a secret value.
func isSecretKey(key string) bool {
	name := strings.Trim(key[strings.LastIndexByte(key, '.')+1:], `"`)
	return slices.Contains(secretKeys, name) || strings.Contains(key, "headers.") && secretHeader.MatchString(name)
}

// Secret is a text that no printing, logging or encoding shows. Only Reveal
// gives it away. The zero Secret is no secret at all.
type Secret struct{ text *string }

// NewSecret wraps a text.
func NewSecret(text string) Secret { return Secret{&text} }

// Reveal gives the text, for the one place that must send it.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// String is never the text.
func (s Secret) String() string { return redacted }

// GoString is never the text.
func (s Secret) GoString() string { return redacted }

// Format prints the same for every verb and flag.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue is never the text.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalJSON is never the text.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// secret reads a setting that is a reference to a secret, and the secret.
func (t *table) secret(name string, to *Secret) bool {
	n := t.get(name)
	return n != nil && t.l.secret(n, to)
}

func (l *loader) secret(n *node, to *Secret) bool {
	text, _ := n.scalar.(string)
	if !isReference(text) {
		l.fault(n, "%s", literalSecret)
		return false
	}
	return l.resolve(n, text, to)
}

// isReference reports whether a text has the form of a reference to a secret.
func isReference(text string) bool {
	return strings.HasPrefix(text, "env:") || strings.HasPrefix(text, "file:")
}

// unread stands in for secrets that this process has no need to read.
const unread = "unread"

// resolve reads what a reference refers to.
func (l *loader) resolve(n *node, reference string, to *Secret) bool {
	if l.getenv == nil {
		return assign(to, NewSecret(unread))
	}
	var text string
	var err error
	if name, ok := strings.CutPrefix(reference, "env:"); ok {
		text, err = l.environment(name)
	} else {
		text, err = l.secretFile(strings.TrimPrefix(reference, "file:"))
	}
	if err == nil && strings.ContainsFunc(text, unicode.IsControl) {
		err = errors.New("the secret holds a line end or another control character")
	}
	if err != nil {
		l.wrong(n, "%v", err)
		return false
	}
	return assign(to, NewSecret(text))
}

func (l *loader) environment(name string) (string, error) {
	if name == "" {
		return "", errors.New("env: names no variable")
	}
	text := l.getenv(name)
	if text == "" {
		return "", fmt.Errorf("environment variable %s is not set, or empty", name)
	}
	return text, nil
}

// secretFile reads a file with a secret; one line end after it is not part of
// the secret.
func (l *loader) secretFile(path string) (string, error) {
	if path == "" {
		return "", errors.New("file: names no file")
	}
	file, err := os.Open(l.path(path))
	if err != nil {
		return "", fmt.Errorf("reading the secret: %w", plainPath(err))
	}
	defer file.Close() //nolint:errcheck // nothing was written
	content, err := io.ReadAll(io.LimitReader(file, maxSecretBytes+1))
	text := strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r")
	switch {
	case err != nil:
		return "", fmt.Errorf("reading the secret: %w", plainPath(err))
	case len(content) > maxSecretBytes:
		return "", fmt.Errorf("the file has more than %d bytes", maxSecretBytes)
	case text == "":
		return "", errors.New("the file is empty")
	}
	return text, nil
}

// plainPath takes operation and path out of a file error: the message shows the
// setting already.
func plainPath(err error) error {
	if at, ok := errors.AsType[*os.PathError](err); ok {
		return at.Err
	}
	return err
}

// path joins a path of the file to the file's folder.
func (l *loader) path(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(l.dir, path)
}
