package cli

import (
	"testing"

	"semel/engine/api"
)

func TestEstimateText(t *testing.T) {
	usd := func(amount string) *api.Money { return &api.Money{Amount: amount, Currency: "USD"} }
	for want, e := range map[string]api.Estimate{
		"5 more targets: nothing to go by, since no job has completed": {Targets: 5, Thin: true},
		"1 more target: 2.0 kB, by 1 complete job: few to go by":       {Targets: 1, Jobs: 1, Thin: true, Bytes: 2000},
		"1000 more targets: 1.0 GB (900.0 MB to 1.2 GB), 1.00 USD (0.90 USD to 1.20 USD), 2 days of budget, by 500 complete jobs": {
			Targets: 1000, Jobs: 500, Bytes: 1e9, BytesLow: 9e8, BytesHigh: 1.2e9, Cost: usd("1.00"), CostLow: usd("0.90"), CostHigh: usd("1.20"), Days: 2,
		},
		"10 more targets: 5.0 MB, 0.005 USD, 1 day of budget, by 30 complete jobs": {Targets: 10, Jobs: 30, Bytes: 5e6, Cost: usd("0.005"), Days: 1},
	} {
		if got := estimateText(&e); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestSpentText(t *testing.T) {
	budget := int64(2e9)
	for want, p := range map[string]api.ProxyStatus{
		"today 0 B up, 0 B down; in all 0 B":            {},
		"today 1.0 kB up, 2.0 kB down; in all 300.0 kB": {Today: api.Traffic{BytesUp: 1000, BytesDown: 2000}, Traffic: api.Traffic{BytesDown: 300_000}},
		"today 1.0 MB up, 2.0 MB down (0.1% of the budget of 2.0 GB), 0.003 USD; in all 5.0 GB, 5.00 USD": {
			Today: api.Traffic{BytesUp: 1e6, BytesDown: 2e6}, Traffic: api.Traffic{BytesUp: 1e9, BytesDown: 4e9}, Budget: &budget,
			Cost: &api.Money{Amount: "5.00", Currency: "USD"}, CostToday: &api.Money{Amount: "0.003", Currency: "USD"},
		},
	} {
		if got := spentText(p); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestHostsText(t *testing.T) {
	s := api.Status{Hosts: map[string]api.Traffic{}}
	for name, n := range map[string]int64{"a": 1, "b": 2000, "c": 3, "d": 3, "e": 5, "f\x1b": 6} {
		s.Hosts[name] = api.Traffic{BytesUp: n}
	}
	if got, want := hostsText(&s), "b 2.0 kB, f\ufffd 6 B, e 5 B, c 3 B, d 3 B"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestWastedText(t *testing.T) {
	for want, s := range map[string]api.SourceStatus{
		"": {BytesUp: 1, BytesDown: 1},
		", 2.5% in attempts that did not complete": {BytesUp: 10, BytesDown: 30, BytesWasted: 1},
	} {
		if got := wastedText(s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
