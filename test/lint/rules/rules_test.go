package rules_test

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"

	"turnpike/test/lint/rules"
)

func TestRulesReportViolations(t *testing.T) {
	t.Parallel()
	analysistest.Run(t, analysistest.TestData(), rules.Shadow, "shadow")
	analysistest.Run(t, analysistest.TestData(), rules.Parameters, "parameters")
	analysistest.Run(t, analysistest.TestData(), rules.Unused, "unused")
	analysistest.Run(t, analysistest.TestData(), rules.Reads, "turnpike/internal/reads")
}
