package dashboard

import (
	"fmt"
	"reflect"
	"slices"
	"text/template/parse"
)

// html/template passes the names in templates to reflect.Value.MethodByName. So the
// linker has to keep every exported method of the program: 6 MB. Pages use a copy
// of html/template that calls no methods, and allowMethods turns the calls into
// calls of template functions, which know the methods by constant names
// (methodnames.go).

// methodFunctions are the template functions that allowMethods adds calls of.
var methodFunctions = map[string]any{"_get": getMember, "_call": callMethod}

// allowMethods rewrites the accesses to members that may be methods: .A.URL "x" becomes
// _call .A "URL" "x", and .A.Name.B becomes (_get .A "Name").B. It has no effect on
// a tree that is rewritten already.
func allowMethods(t *parse.Tree) {
	if t != nil && t.Root != nil {
		rewriteNode(t.Root)
	}
}

func rewriteNode(n parse.Node) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil {
			for _, child := range n.Nodes {
				rewriteNode(child)
			}
		}
	case *parse.ActionNode:
		rewritePipe(n.Pipe)
	case *parse.TemplateNode:
		rewritePipe(n.Pipe)
	case *parse.IfNode:
		rewriteBranch(&n.BranchNode)
	case *parse.RangeNode:
		rewriteBranch(&n.BranchNode)
	case *parse.WithNode:
		rewriteBranch(&n.BranchNode)
	}
}

func rewriteBranch(n *parse.BranchNode) {
	rewritePipe(n.Pipe)
	rewriteNode(n.List)
	rewriteNode(n.ElseList)
}

func rewritePipe(p *parse.PipeNode) {
	if p == nil {
		return
	}
	for i, c := range p.Cmds {
		takesArguments := len(c.Args) > 1 || i > 0
		for j, arg := range c.Args {
			c.Args[j] = rewriteOperand(arg)
		}
		last, ok := c.Args[0].(*parse.PipeNode) // of the accesses that were rewritten
		if !ok || len(last.Cmds) != 1 || !isCall(last.Cmds[0], "_get") || !takesArguments {
			continue
		}
		inner := last.Cmds[0].Args
		c.Args = slices.Concat([]parse.Node{parse.NewIdentifier("_call").SetPos(c.Pos)}, inner[1:], c.Args[1:])
	}
}

func isCall(c *parse.CommandNode, function string) bool {
	id, ok := c.Args[0].(*parse.IdentifierNode)
	return ok && id.Ident == function
}

// rewriteOperand returns what replaces an operand of a command.
func rewriteOperand(n parse.Node) parse.Node {
	switch n := n.(type) {
	case *parse.PipeNode:
		rewritePipe(n)
	case *parse.FieldNode:
		return rewriteMembers(&parse.DotNode{NodeType: parse.NodeDot, Pos: n.Pos}, n, n.Ident)
	case *parse.VariableNode:
		return rewriteMembers(&parse.VariableNode{NodeType: parse.NodeVariable, Pos: n.Pos, Ident: n.Ident[:1]}, n, n.Ident[1:])
	case *parse.ChainNode:
		n.Node = rewriteOperand(n.Node)
		return rewriteMembers(n.Node, n, n.Field)
	}
	return n
}

// rewriteMembers returns a node for whole, which accesses the members of a value.
func rewriteMembers(value, whole parse.Node, members []string) parse.Node {
	i := slices.IndexFunc(members, func(name string) bool { return templateMethods[name] != nil })
	if i < 0 {
		return whole
	}
	pos := whole.Position()
	if i > 0 {
		value = &parse.ChainNode{NodeType: parse.NodeChain, Pos: pos, Node: value, Field: members[:i]}
	}
	get := &parse.CommandNode{NodeType: parse.NodeCommand, Pos: pos, Args: []parse.Node{
		parse.NewIdentifier("_get").SetPos(pos), value,
		&parse.StringNode{NodeType: parse.NodeString, Pos: pos, Quoted: fmt.Sprintf("%q", members[i]), Text: members[i]},
	}}
	value = &parse.PipeNode{NodeType: parse.NodePipe, Pos: pos, Cmds: []*parse.CommandNode{get}}
	rest := members[i+1:]
	if len(rest) == 0 {
		return value
	}
	return rewriteMembers(value, &parse.ChainNode{NodeType: parse.NodeChain, Pos: pos, Node: value, Field: rest}, rest)
}

// getMember returns what a method without arguments returns, a field, or the element
// of a map.
func getMember(value reflect.Value, name string) (reflect.Value, error) {
	if !value.IsValid() {
		return reflect.Value{}, nil
	}
	if m := methodOf(value, name); m.IsValid() {
		return invoke(m, nil)
	}
	inner := follow(value)
	switch inner.Kind() {
	case reflect.Struct:
		if field, ok := inner.Type().FieldByName(name); ok && field.IsExported() {
			return inner.FieldByIndexErr(field.Index)
		}
	case reflect.Map:
		if key := reflect.ValueOf(name); key.Type().AssignableTo(inner.Type().Key()) {
			return inner.MapIndex(key), nil
		}
	case reflect.Pointer, reflect.Interface: // nil
		return reflect.Value{}, fmt.Errorf("nil pointer evaluating %s.%s", value.Type(), name)
	}
	return reflect.Value{}, fmt.Errorf("can't evaluate field %s in type %s", name, value.Type())
}

// callMethod returns what a method with arguments returns.
func callMethod(value reflect.Value, name string, args ...reflect.Value) (reflect.Value, error) {
	if value.IsValid() {
		if m := methodOf(value, name); m.IsValid() {
			return invoke(m, args)
		}
	}
	return reflect.Value{}, fmt.Errorf("%s is not a method but has arguments", name)
}

// methodOf returns a method of a value or of its address. It is invalid if there is
// none.
func methodOf(value reflect.Value, name string) reflect.Value {
	for value.Kind() == reflect.Pointer && value.Elem().Kind() == reflect.Pointer || value.Kind() == reflect.Interface && !value.IsNil() {
		value = value.Elem()
	}
	if value.Kind() == reflect.Interface {
		return reflect.Value{}
	}
	if value.Kind() != reflect.Pointer && value.CanAddr() {
		value = value.Addr()
	}
	return templateMethods[name](value)
}

// follow follows pointers and interfaces up to a nil one.
func follow(value reflect.Value) reflect.Value {
	for (value.Kind() == reflect.Pointer || value.Kind() == reflect.Interface) && !value.IsNil() {
		value = value.Elem()
	}
	return value
}

func invoke(method reflect.Value, args []reflect.Value) (reflect.Value, error) {
	t := method.Type()
	for i, arg := range args {
		want := t.In(min(i, t.NumIn()-1)) // panics if it takes none, which the template reports
		if t.IsVariadic() && i >= t.NumIn()-1 {
			want = want.Elem()
		}
		var err error
		if args[i], err = argument(arg, want); err != nil {
			return reflect.Value{}, fmt.Errorf("argument %d: %w", i+1, err)
		}
	}
	out := method.Call(args)
	if len(out) == 2 && !out[1].IsNil() {
		return out[0], out[1].Interface().(error)
	}
	return out[0], nil
}

// argument converts an argument as a template does for functions: it dereferences a
// pointer or takes the address, and constants have the type of the parameter.
func argument(arg reflect.Value, want reflect.Type) (reflect.Value, error) {
	if !arg.IsValid() {
		return reflect.Zero(want), nil
	}
	if arg.Kind() == reflect.Interface && !arg.IsNil() && !arg.Type().AssignableTo(want) {
		arg = arg.Elem()
	}
	switch have := arg.Type(); {
	case have.AssignableTo(want):
		return arg, nil
	case arg.Kind() == reflect.Pointer && !arg.IsNil() && have.Elem().AssignableTo(want):
		return arg.Elem(), nil
	case arg.CanAddr() && reflect.PointerTo(have).AssignableTo(want):
		return arg.Addr(), nil
	case have.Kind() == reflect.String && want.Kind() == reflect.String, arg.CanInt() && reflect.Zero(want).CanInt():
		return arg.Convert(want), nil
	default:
		return arg, fmt.Errorf("wrong type: expected %s, got %s", want, have)
	}
}
