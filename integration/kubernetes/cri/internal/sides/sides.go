// Package sides names the sockets that a measurement compares.
package sides

import (
	"fmt"
	"strings"
)

// A Side is one socket; its name is its key in the report.
type Side struct{ Name, Path string }

// List is a flag that is given once for each side, as name=path.
type List []Side

func (l *List) String() string { return fmt.Sprint(*l) }

func (l *List) Set(value string) error {
	name, path, found := strings.Cut(value, "=")
	if !found || name == "" || path == "" {
		return fmt.Errorf("not name=path: %q", value)
	}
	*l = append(*l, Side{name, path})
	return nil
}
