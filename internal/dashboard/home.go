package dashboard

// homeData is the first look at how things are.
type homeData struct{}

func homePage(v *visit) (*view, error) {
	return &view{template: "home", title: "Home", data: homeData{}, live: true}, nil
}
