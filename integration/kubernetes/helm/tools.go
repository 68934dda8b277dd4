//go:build tools

// Package tools pins helm, which integration/build.py builds for the tests.
package tools

import (
	_ "helm.sh/helm/v3/cmd/helm"
)
