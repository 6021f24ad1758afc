//go:build !linux

package app

func dropProgramPages() error { return nil }
