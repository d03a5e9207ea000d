package api

import (
	"context"
	"encoding/json"
	"net/http"

	"semel/engine/delivery"
)

// Event implements Service.
func (l *Local) Event(ctx context.Context, ref string) (json.RawMessage, error) {
	e, err := l.event(ctx, ref)
	if err != nil {
		return nil, err
	}
	return delivery.AppendJSON(nil, e), nil
}

// event answers with the bytes that sinks get, of which answer would escape some.
func (h *Handler) event(w *response, r *http.Request) error {
	e, err := h.local.Event(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", jsonType)
	_, err = w.Write(e)
	return err
}
