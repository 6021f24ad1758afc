package parameters

func seven(a, b, c, d, e, f, g int) {}

func eight(a, b, c, d, e, f, g, h int) {} // want "8 parameters"
