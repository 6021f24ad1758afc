package accounts

import (
	"encoding/json"
	"strconv"
	"strings"

	"turnpike/internal/credits"
	"turnpike/internal/fault"
)

// ParseThreshold reads an amount of credits such as 100, or a percentage such as 20%.
func ParseThreshold(s string) (Threshold, error) {
	invalid := fault.Invalid("alert_threshold", "alert_threshold must be an amount of credits such as 100, or a percentage from 0%% to 100%%.")
	if digits, isPercent := strings.CutSuffix(s, "%"); isPercent {
		n, err := strconv.ParseUint(digits, 10, 8)
		if err != nil || n > 100 {
			return Threshold{}, invalid
		}
		return Threshold{Percent: int64(n)}, nil
	}
	amount, err := credits.Parse(s)
	if err != nil || amount < 0 {
		return Threshold{}, invalid
	}
	return Threshold{Credits: &amount}, nil
}

// String formats the threshold for ParseThreshold.
func (t Threshold) String() string {
	if t.Credits != nil {
		return t.Credits.String()
	}
	return strconv.FormatInt(t.Percent, 10) + "%"
}

// MarshalJSON writes an amount as a number and a percentage as a string.
func (t Threshold) MarshalJSON() ([]byte, error) {
	if t.Credits != nil {
		return t.Credits.MarshalJSON()
	}
	return json.Marshal(t.String())
}
