package config

import (
	"fmt"
	"math/big"
	"testing"
)

// moneyConfig has one proxy with these settings.
func moneyConfig(settings string) string {
	return "version = 1\n[proxy.p]\nurl = \"http://gw.example.com:1\"\n" + settings
}

func TestBudget(t *testing.T) {
	for text, want := range map[string]int64{
		``: 0, `budget = ""`: 0, `budget = "2GB/day"`: 2e9, `budget = "1.5 GiB/day"`: 3 << 29, `budget = "1B/day"`: 1,
	} {
		if got := mustLoad(t, moneyConfig(text), nil).Proxies[0].Budget; got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

// TestPrice: a price is exact for any number of bytes.
func TestPrice(t *testing.T) {
	for _, test := range []struct {
		text     string
		bytes    int64
		currency string
		want     string // a fraction
	}{
		{``, 1e9, "", "0/1"},
		{`price = ""`, 1e9, "", "0/1"},
		{`price = "1.00 USD/GB"`, 1e9, "USD", "1/1"},
		{`price = "1.00 USD/GB"`, 0, "USD", "0/1"},
		{`price = "0 USD/GB"`, 1e9, "USD", "0/1"},
		{`price = "0.1 EUR/GB"`, 3, "EUR", "3/10000000000"},
		{`price = "3.30 EUR/GiB"`, 1 << 30, "EUR", "33/10"},
		{`price = "7.77 EUR/GB"`, 1<<63 - 1, "EUR", new(big.Rat).Mul(big.NewRat(777, 100e9), big.NewRat(1<<63-1, 1)).String()},
	} {
		price := mustLoad(t, moneyConfig(test.text), nil).Proxies[0].Price
		if got := fmt.Sprint(price.Cost(test.bytes)); got != test.want || price.Currency != test.currency {
			t.Errorf("%s for %d bytes: %s %s, want %s %s", test.text, test.bytes, got, price.Currency, test.want, test.currency)
		}
		if again := fmt.Sprint(price.Cost(test.bytes)); again != test.want {
			t.Errorf("%s the second time: %s, want %s", test.text, again, test.want)
		}
	}
}
