package storage

import (
	"context"
	"testing"
	"testing/synctest"
)

// TestDropObservation: nothing of a deleted observation is left but the events
// that told of it.
func TestDropObservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := damagedStore(t)
		err := s.Update(context.Background(), func(tx *Tx) error {
			o, err := decodeObservation(rowGone, tx.get(bucketObservation, rowGone))
			if err != nil {
				return err
			}
			if err := tx.DiscardEvent(eventGone, "a"); err != nil {
				return err
			}
			if err := tx.forgetEvent(idKey(eventGone), tx.get(bucketEvent, idKey(eventGone))); err != nil {
				return err
			}
			return tx.dropObservation(o)
		})
		if err != nil {
			t.Fatal(err)
		}
		wantClean(t, s)
	})
}
