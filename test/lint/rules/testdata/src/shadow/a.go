package shadow

type box struct{ len int } // a field doesn't shadow

func (b box) close() int { return b.len } // nor does a method

func copy() int { // want "copy shadows a builtin"
	max := box{}.close() // want "max shadows a builtin"
	return max
}
