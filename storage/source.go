package storage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"time"
)

// Source is what the store remembers of a configured source: under which
// identity and rules its jobs and observations were made.
type Source struct {
	Name     string    `json:"-"`
	Identity string    `json:"identity"` // fingerprint of the settings that make job keys
	Rules    string    `json:"rules"`    // fingerprint of the parser's rules
	Version  int       `json:"version"`  // that these rules have
	Since    time.Time `json:"since"`    // when these were first used; set by PutSource

	// Fingerprints of the rules that other versions had last; set by PutSource, since
	// schema 5.
	Past map[int]string `json:"past,omitempty"`

	// For telling people what differs; absent in records of schema 3.
	IdentityText string            `json:"identity_text,omitempty"` // the settings of Identity
	Parts        map[string]string `json:"parts,omitempty"`         // fingerprints of the rules' parts, by setting
}

// same reports whether two records stand for the same identity and rules.
func (s *Source) same(other *Source) bool {
	return s.Identity == other.Identity && s.Rules == other.Rules && s.Version == other.Version
}

// Source reads a source. Error: ErrNotFound.
func (tx *Tx) Source(name string) (Source, error) {
	v := tx.get(bucketSource, []byte(name))
	if v == nil {
		return Source{}, fmt.Errorf("source %s: %w", name, ErrNotFound)
	}
	s := Source{Name: name}
	if err := json.Unmarshal(v, &s); err != nil {
		return Source{}, &RecordError{bucketNames[bucketSource], []byte(name), err}
	}
	return s, nil
}

// Sources are all sources that ever had jobs here, by name.
func (tx *Tx) Sources() ([]Source, error) {
	var list []Source
	c := tx.bucket(bucketSource).Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		s, err := tx.Source(string(k))
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

// PutSource remembers a source as it is now.
func (tx *Tx) PutSource(s Source) error {
	was, err := tx.Source(s.Name)
	if err != nil && !isNotFound(err) {
		return err
	}
	s.Since, s.Past = tx.Now, was.Past
	switch {
	case err != nil: // it is new
	case was.same(&s):
		s.Since = was.Since
	case was.Version != s.Version:
		s.Past = maps.Clone(was.Past)
		if s.Past == nil {
			s.Past = map[int]string{}
		}
		s.Past[was.Version] = was.Rules
		delete(s.Past, s.Version)
	}
	v, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encoding source %s: %w", s.Name, err)
	}
	old := tx.get(bucketSource, []byte(s.Name))
	if bytes.Equal(old, v) {
		return nil
	}
	return tx.replace(bucketSource, []byte(s.Name), old, v)
}
