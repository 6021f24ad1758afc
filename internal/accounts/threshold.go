package accounts

import (
	"encoding/json"
	"strconv"
	"strings"

	"turnpike/internal/credits"
	"turnpike/internal/fault"
)

// ParseThreshold reads an amount of credits such as 100, or a share such as 20%.
func ParseThreshold(s string) (Threshold, error) {
	bad := fault.Invalid("alert_threshold", "a threshold is an amount of credits such as 100, or a share from 0%% to 100%%")
	if digits, isShare := strings.CutSuffix(s, "%"); isShare {
		n, err := strconv.ParseUint(digits, 10, 8)
		if err != nil || n > 100 {
			return Threshold{}, bad
		}
		return Threshold{Percent: int64(n)}, nil
	}
	amount, err := credits.Parse(s)
	if err != nil || amount < 0 {
		return Threshold{}, bad
	}
	return Threshold{Credits: &amount}, nil
}

// String writes what ParseThreshold reads.
func (t Threshold) String() string {
	if t.Credits != nil {
		return t.Credits.String()
	}
	return strconv.FormatInt(t.Percent, 10) + "%"
}

// MarshalJSON writes an amount as a number and a share as a text.
func (t Threshold) MarshalJSON() ([]byte, error) {
	if t.Credits != nil {
		return t.Credits.MarshalJSON()
	}
	return json.Marshal(t.String())
}
