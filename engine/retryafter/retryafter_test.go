package retryafter

import (
	"net/http"
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 4, 23, 15, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		value, date string
		want        time.Duration
	}{
		{"", "", 0},
		{"120", "", 2 * time.Minute},
		{" 120 ", "", 2 * time.Minute},
		{"0", "", 0},
		{"-5", "", 0},
		{"1.5", "", 0},
		{"soon", "", 0},
		{"99999999999", "", Max},
		{"Thu, 23 Apr 2026 15:01:00 GMT", "", time.Minute},
		{"Thu, 23 Apr 2026 14:00:00 GMT", "", 0},
		{"Thu, 23 Apr 2026 15:01:00 GMT", "Thu, 23 Apr 2026 15:00:30 GMT", 30 * time.Second},
		{"Thu, 23 Apr 2036 15:01:00 GMT", "", Max},
	} {
		h := http.Header{}
		h.Set("Retry-After", test.value)
		if test.date != "" {
			h.Set("Date", test.date)
		}
		if got := Parse(h, now); got != test.want {
			t.Errorf("Retry-After %q, Date %q: %s, want %s", test.value, test.date, got, test.want)
		}
	}
}
