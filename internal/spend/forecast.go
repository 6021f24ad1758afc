package spend

import (
	"math/big"
	"time"

	"turnpike/internal/credits"
)

// minForecast is how much of a period must be over before its pace means anything.
const minForecast = time.Hour

// Forecast is the spending of a period if it goes on at the same pace as since the period's start.
type Forecast struct {
	Total       credits.Micro // at the end of the period
	ExhaustedAt *time.Time    // nil if the budget lasts, or there is none
}

// ForecastOf returns the forecast for a period, or nil at its beginning, without spending and for a lifetime.
func ForecastOf(spent credits.Micro, limit *credits.Micro, p Period, now time.Time) *Forecast {
	start, end := p.Start(), p.End()
	elapsed := now.Sub(start)
	if start.IsZero() || spent <= 0 || elapsed < minForecast || !now.Before(end) {
		return nil
	}
	f := &Forecast{Total: credits.Micro(scale(int64(spent), int64(end.Sub(start)/time.Second), int64(elapsed/time.Second), int64(credits.Max)))}
	switch {
	case limit == nil || *limit > f.Total:
	case spent >= *limit:
		f.ExhaustedAt = &now
	default:
		seconds := scale(int64(elapsed/time.Second), int64(*limit), int64(spent), int64(end.Sub(start)/time.Second))
		at := start.Add(time.Duration(seconds) * time.Second)
		f.ExhaustedAt = &at
	}
	return f
}

// scale returns a*b/c, at most most. The product may exceed 64 bits.
func scale(a, b, c, most int64) int64 {
	n := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
	n.Div(n, big.NewInt(c))
	if !n.IsInt64() {
		return most
	}
	return min(n.Int64(), most)
}
