package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"turnpike/test/chaos/program"
)

// askPatience bounds everything that a child is asked to do: no run hangs.
const askPatience = 2 * time.Minute

// child is this program in another role, as a process of its own. It does what
// it is told, one order at a time.
type child struct {
	role string
	cmd  *exec.Cmd
	in   *json.Encoder
	out  *json.Decoder
}

// startChild starts the role and returns when the first order was carried out.
func startChild(ctx context.Context, role string, order, answer any) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = os.Stderr
	program.EndWithParent(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{role: role, cmd: cmd, in: json.NewEncoder(in), out: json.NewDecoder(out)}
	if err := c.ask(ctx, order, answer); err != nil {
		c.kill()
		return nil, err
	}
	return c, nil
}

// ask gives an order and waits until it was carried out. A child that takes
// too long is ended.
func (c *child) ask(ctx context.Context, order, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = c.cmd.Process.Kill() })()
	err := c.in.Encode(order)
	if err == nil {
		err = c.out.Decode(answer)
	}
	if err != nil {
		return fmt.Errorf("the %s: %w", c.role, errors.Join(ctx.Err(), err))
	}
	return nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// kill ends the child at once, and returns when it is gone. It may be called again.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // fails only when it has ended already
	_ = c.cmd.Wait()
}

// orders is the other end of a child.
type orders struct {
	in  *json.Decoder
	out *json.Encoder
}

// obey carries orders out until there are no more: the child ends with whoever
// started it.
func obey[O, A any](o orders, do func(O) (A, error)) error {
	for {
		var order O
		if err := o.in.Decode(&order); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		answer, err := do(order)
		if err != nil {
			return err
		}
		if err := o.out.Encode(answer); err != nil {
			return err
		}
	}
}
