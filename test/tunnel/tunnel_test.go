package tunnel_test

import (
	"testing"

	"turnpike/internal/db/dbtest"
	"turnpike/test/harness"
)

// guarantees are tested on a shared server.
var guarantees = map[string]func(t *testing.T, c *tenant){
	"ReportsOfAnUntrustedClientAreBounded":       reportsOfAnUntrustedClientAreBounded,
	"InvalidFrameEndsTheConnection":              invalidFrameEndsTheConnection,
	"LostReportDoesNotRepeatTheRequest":          lostReportDoesNotRepeatTheRequest,
	"ReconnectedClientGetsHeldDeliveries":        reconnectedClientGetsHeldDeliveries,
	"StoppingClientFinishesDeliveriesInProgress": stoppingClientFinishesDeliveriesInProgress,
	"ForwardedRequestEqualsThatOfAnEndpoint":     forwardedRequestEqualsThatOfAnEndpoint,
	"TunnelHasItsOwnSecret":                      tunnelHasItsOwnSecret,
	"TunnelGetsOnlyItsEvents":                    tunnelGetsOnlyItsEvents,
	"FailedForwardIsRecordedWithItsReason":       failedForwardIsRecordedWithItsReason,
	"MirrorHasNoEffectOnItsEndpoint":             mirrorHasNoEffectOnItsEndpoint,
	"InvalidRequestsGetAPIErrors":                invalidRequestsGetAPIErrors,
	"RevokedKeyIsDisconnected":                   revokedKeyIsDisconnected,
	"TunnelIsLoggedBeforeItConnects":             tunnelIsLoggedBeforeItConnects,
	"TunnelIsHiddenFromListsByDefault":           tunnelIsHiddenFromListsByDefault,
	"NewClientReplacesTheOldOne":                 newClientReplacesTheOldOne,
	"OnlyTheOpeningKeyResumesATunnel":            onlyTheOpeningKeyResumesATunnel,
	"TunnelOfPinnedKeyGetsOnlyItsProject":        tunnelOfPinnedKeyGetsOnlyItsProject,
	"PinningTheKeyEndsTheTunnel":                 pinningTheKeyEndsTheTunnel,
	"DeletingATunnelDisconnectsItsClient":        deletingATunnelDisconnectsItsClient,
}

// TestTunnel runs the guarantees on one server per engine, which is faster.
func TestTunnel(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := harness.Start(t, configured(t, engine), harness.NewClock())
			for name, fn := range guarantees {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					fn(t, newTenant(t, s))
				})
			}
		})
	}
}
