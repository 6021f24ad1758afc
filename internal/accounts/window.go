package accounts

// Window is how long a budget lasts before it starts again.
type Window string

// The windows of budgets. All boundaries are in UTC.
const (
	WindowDay      Window = "day"
	WindowWeek     Window = "week" // from Monday 00:00
	WindowMonth    Window = "month"
	WindowLifetime Window = "lifetime" // never starts again
)

// Windows lists all windows.
var Windows = []Window{WindowDay, WindowWeek, WindowMonth, WindowLifetime}
