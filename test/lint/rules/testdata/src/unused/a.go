package unused

func Used() { used() }

func used() {}

func forgotten() {} // want "func forgotten is unused"
