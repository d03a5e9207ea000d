package api

import (
	"context"
	"encoding/hex"
	"fmt"

	"semel/storage"
)

// Verify implements Service. The look itself cannot be cut short.
func (l *Local) Verify(ctx context.Context, fn func(Breach) error) (VerifyResult, error) {
	breaches, err := l.Store.Check()
	if err != nil {
		return VerifyResult{}, fmt.Errorf("verifying the store: %w", err)
	}
	result := VerifyResult{Breaches: len(breaches)}
	for _, b := range breaches {
		if err := fn(Breach{b.Bucket, hex.EncodeToString(b.Key), b.What}); err != nil {
			return result, err
		}
	}
	if len(breaches) == 0 { // else nothing else is to be trusted
		result.Sources, err = l.sums()
	}
	return result, err
}

// sums describes each source that the store holds.
func (l *Local) sums() (map[string]SourceSum, error) {
	sums := map[string]SourceSum{}
	err := l.Store.View(func(tx *storage.Tx) error {
		sources, err := tx.Sources()
		for _, s := range sources {
			sums[s.Name] = SourceSum{Rows: tx.Counters(s.Name)[storage.MetricObservations]}
		}
		return err
	})
	return sums, err
}
