package delivery

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// secretPrefix begins the secrets of Standard Webhooks.
const secretPrefix = "whsec_"

// What Standard Webhooks wants of a secret ("Signature scheme").
const (
	minSecretBytes = 24
	maxSecretBytes = 64
)

// ErrSecret: a text is no secret of Standard Webhooks. It does not show the text.
var ErrSecret = errors.New(`the secret must be "whsec_" and the base64 of 24 to 64 random bytes, as openssl rand -base64 32 makes them`)

// Signer signs events with one secret. It holds a function and not the secret, so
// that no printing shows it.
type Signer struct {
	sign func(id string, now time.Time, payload []byte) (string, error)
}

// NewSigner takes a secret as Standard Webhooks writes it. Error: ErrSecret.
func NewSigner(secret string) (Signer, error) {
	text, prefixed := strings.CutPrefix(secret, secretPrefix)
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || !prefixed || len(raw) < minSecretBytes || len(raw) > maxSecretBytes {
		return Signer{}, ErrSecret
	}
	key, err := standardwebhooks.NewWebhookRaw(raw)
	if err != nil {
		return Signer{}, fmt.Errorf("%w: %w", ErrSecret, err)
	}
	return Signer{key.Sign}, nil
}

// signatures are those of all signers, as the header has them.
func signatures(signers []Signer, id string, now time.Time, payload []byte) (string, error) {
	list := make([]string, len(signers))
	for i, s := range signers {
		var err error
		if list[i], err = s.sign(id, now, payload); err != nil {
			return "", err
		}
	}
	return strings.Join(list, " "), nil
}
