package parameters

func five(a, b, c, d, e int) {}

func six(a, b, c, d, e, f int) {} // want "6 parameters"
