package api

import (
	"encoding/json"
	"math"
	"math/big"
	"testing"

	"github.com/google/go-cmp/cmp"

	"semel/engine/config"
	"semel/storage"
)

func TestAmountText(t *testing.T) {
	for fraction, want := range map[string]string{
		"0": "0.00", "1": "1.00", "5/2": "2.50", "12346/1000": "12.35", "1234567899/100": "12345678.99",
		"1/2": "0.50", "1/8": "0.125", "1/3": "0.333", "2/3": "0.667", "21/10000": "0.0021", "21346/10000000": "0.00213",
		"9996/10000": "1.00", "9994/10000": "0.999", "5/1000": "0.005", "1/1000000000": "0.000000001",
		"1/1000000000000000000000": "0.00",
	} {
		amount, _ := new(big.Rat).SetString(fraction)
		if got := amountText(amount); got != want {
			t.Errorf("%s is %s, want %s", fraction, got, want)
		}
	}
}

func TestScaled(t *testing.T) {
	for _, test := range []struct{ n, by, over, want int64 }{
		{0, 5, 3, 0}, {10, 3, 4, 8}, {12, 1, 4, 3}, {1, 1, 1 << 62, 1},
		{1e15, 1e9, 1e9, 1e15}, {math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64},
		{math.MaxInt64, 2, 1, math.MaxInt64}, {math.MaxInt64, math.MaxInt64, 1, math.MaxInt64},
	} {
		if got := scaled(test.n, test.by, test.over); got != test.want {
			t.Errorf("%d*%d/%d is %d, want %d", test.n, test.by, test.over, got, test.want)
		}
	}
}

// prices loads a config with proxies: home and other have prices in USD, far in
// EUR, and free has none; home and far have budgets.
func prices(t *testing.T) *config.Config {
	t.Helper()
	return load(t, `version = 1
[proxy.home]
url = "http://gw.test:1"
price = "2.00 USD/GB"
budget = "1MB/day"
[proxy.other]
url = "http://gw.test:2"
price = "0.50 USD/GB"
[proxy.far]
url = "http://gw.test:3"
price = "1.00 EUR/GiB"
budget = "100kB/day"
[proxy.free]
url = "http://gw.test:4"
`)
}

func money(amount, currency string) *Money { return &Money{amount, currency} }

// Costs are known where every proxy used has a price in one currency.
func TestCostOf(t *testing.T) {
	c := prices(t)
	through := func(names ...string) map[string]storage.Traffic {
		used := map[string]storage.Traffic{}
		for _, name := range names {
			used[name] = storage.Traffic{Up: 1e8, Down: 9e8}
		}
		return used
	}
	for _, test := range []struct {
		name string
		used map[string]storage.Traffic
		want *Money
	}{
		{"none, all went directly", through(), nil},
		{"one", through("home"), money("2.00", "USD")},
		{"two of one currency", through("home", "other"), money("2.50", "USD")},
		{"two currencies", through("home", "far"), nil},
		{"one without a price", through("home", "free"), nil},
		{"one that the config no longer has", through("home", "gone"), nil},
		{"by the GiB", through("far"), money("0.931", "EUR")},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, costOf(c, test.used).money()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// history are counters of jobs that completed, with what went through proxies.
func history(jobs int64, more map[string]int64) storage.Counters {
	c := storage.Counters{storage.MetricComplete: jobs}
	for name, n := range more {
		c[name] = n
	}
	return c
}

func TestEstimate(t *testing.T) {
	days := func(perDay map[string][2]int64) map[string]int64 {
		all := map[string]int64{"bytes_up": 1_000_000, "bytes_down": 9_000_000, "proxy_up/home": 1_000_000, "proxy_down/home": 9_000_000}
		for day, n := range perDay {
			all["day/"+day+"/attempts/complete"], all["day/"+day+"/bytes_down"] = n[0], n[1]
		}
		return all
	}
	for _, test := range []struct {
		name    string
		history storage.Counters
		want    Estimate
	}{
		{"no history", history(0, map[string]int64{"bytes_up": 500}), Estimate{Targets: 1000, Thin: true}},
		{"a thin one, directly", history(29, map[string]int64{"bytes_up": 29, "bytes_down": 290}),
			Estimate{Targets: 1000, Jobs: 29, Thin: true, Bytes: 11_000}},
		{"through a proxy", history(100, days(nil)), // 100 kB each
			Estimate{Targets: 1000, Jobs: 100, Bytes: 100_000_000, Cost: money("0.20", "USD"), Days: 100}},
		{"half of it directly", history(100, map[string]int64{"bytes_down": 10_000_000, "proxy_down/home": 5_000_000}),
			Estimate{Targets: 1000, Jobs: 100, Bytes: 100_000_000, Cost: money("0.10", "USD"), Days: 50}},
		{"one day is no range", history(100, days(map[string][2]int64{"2026-04-23": {100, 10_000_000}})),
			Estimate{Targets: 1000, Jobs: 100, Bytes: 100_000_000, Cost: money("0.20", "USD"), Days: 100}},
		{"days of few jobs are none", history(100, days(map[string][2]int64{"2026-04-23": {91, 9_000_000}, "2026-04-24": {9, 1_000_000}})),
			Estimate{Targets: 1000, Jobs: 100, Bytes: 100_000_000, Cost: money("0.20", "USD"), Days: 100}},
		{"a range", history(100, days(map[string][2]int64{"2026-04-22": {50, 4_000_000}, "2026-04-23": {40, 4_000_000}, "2026-04-24": {10, 2_000_000}})),
			Estimate{Targets: 1000, Jobs: 100, Bytes: 100_000_000, BytesLow: 80_000_000, BytesHigh: 200_000_000,
				Cost: money("0.20", "USD"), CostLow: money("0.16", "USD"), CostHigh: money("0.40", "USD"), Days: 100}},
		{"all kept days are dearer", history(100, days(map[string][2]int64{"2026-04-22": {10, 2_000_000}, "2026-04-23": {10, 3_000_000}})),
			Estimate{Targets: 1000, Jobs: 100, Bytes: 100_000_000, BytesLow: 100_000_000, BytesHigh: 300_000_000,
				Cost: money("0.20", "USD"), CostLow: money("0.20", "USD"), CostHigh: money("0.60", "USD"), Days: 100}},
		{"the slowest budget counts", history(100, map[string]int64{"bytes_down": 10_000_000, "proxy_down/home": 5_000_000, "proxy_down/far": 2_010_000}),
			Estimate{Targets: 1000, Jobs: 100, Bytes: 100_000_000, Days: 201}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(&test.want, newEstimate(prices(t), test.history, 1000)); diff != "" {
				t.Errorf("estimate (-want +got):\n%s", diff)
			}
		})
	}
}

// Where nothing is known, no figure pretends to be one.
func TestEstimateJSON(t *testing.T) {
	text, err := json.Marshal(newEstimate(prices(t), nil, 5))
	if want := `{"targets":5,"jobs":0,"thin":true}`; err != nil || string(text) != want {
		t.Errorf("%s, %v; want %s", text, err, want)
	}
}
