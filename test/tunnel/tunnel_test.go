package tunnel_test

import (
	"testing"

	"turnpike/internal/db/dbtest"
	"turnpike/test/harness"
)

// guarantees are what holds on a server with other customers at work.
var guarantees = map[string]func(t *testing.T, c *customer){
	"WhatAStrangeClientSaysIsHeldInBounds":          whatAStrangeClientSaysIsHeldInBounds,
	"WhatIsNoFrameEndsTheConnection":                whatIsNoFrameEndsTheConnection,
	"CutBetweenTheAnswerAndItsReportRepeatsNothing": cutBetweenTheAnswerAndItsReportRepeatsNothing,
	"AwayClientFindsWhatWasHeld":                    awayClientFindsWhatWasHeld,
	"LeavingFinishesWhatIsUnderWay":                 leavingFinishesWhatIsUnderWay,
	"ForwardedIsByteForByteWhatAnEndpointGets":      forwardedIsByteForByteWhatAnEndpointGets,
	"TunnelHasItsOwnSecret":                         tunnelHasItsOwnSecret,
	"TunnelGetsTheEventsItAskedFor":                 tunnelGetsTheEventsItAskedFor,
	"WhyNothingAnsweredIsSaid":                      whyNothingAnsweredIsSaid,
	"MirrorHasNoEffectOnItsEndpoint":                mirrorHasNoEffectOnItsEndpoint,
	"WrongRequestsGetOrdinaryErrors":                wrongRequestsGetOrdinaryErrors,
	"RevokedKeyHearsNothingMore":                    revokedKeyHearsNothingMore,
	"TunnelIsInTheLogBeforeItIsThere":               tunnelIsInTheLogBeforeItIsThere,
	"TunnelIsHiddenFromListsUnlessAskedFor":         tunnelIsHiddenFromListsUnlessAskedFor,
	"NewClientTakesTheTunnelOver":                   newClientTakesTheTunnelOver,
	"OnlyTheKeyThatOpenedATunnelResumesIt":          onlyTheKeyThatOpenedATunnelResumesIt,
	"TunnelOfPinnedKeyGetsItsProjectOnly":           tunnelOfPinnedKeyGetsItsProjectOnly,
	"TunnelEndsWhenItsKeyIsPinned":                  tunnelEndsWhenItsKeyIsPinned,
	"DeletingAConnectedTunnelSendsItsClientAway":    deletingAConnectedTunnelSendsItsClientAway,
}

// TestTunnel holds the guarantees on each engine. Starting a server is most of
// the work of most of them, so they share one.
func TestTunnel(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := harness.Start(t, configured(t, engine), harness.NewClock())
			for name, fn := range guarantees {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					fn(t, newCustomer(t, s))
				})
			}
		})
	}
}
