package db

// Observe is called with each statement and its arguments, if it isn't nil. Only tests set it, before they open a database.
var Observe func(query string, args []any)

func observe(query string, args []any) {
	if Observe != nil {
		Observe(query, args)
	}
}
