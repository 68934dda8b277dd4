package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Kubelet's own values (k8s.io/cri-client).
const (
	maxMessageBytes = 16 << 20
	callTimeout     = 2 * time.Minute
	baseBackoff     = 100 * time.Millisecond
	maxBackoff      = 3 * time.Second
	minConnect      = 5 * time.Second
	warmUpCalls     = 200
)

// A caller makes one unary call on its connection.
type caller func(context.Context) error

func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", address)
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: baseBackoff, MaxDelay: maxBackoff,
				Multiplier: backoff.DefaultConfig.Multiplier, Jitter: backoff.DefaultConfig.Jitter,
			},
			MinConnectTimeout: minConnect,
		}))
}

// connect opens a connection, warms it up and returns the call of the chosen method on it.
func connect(socket, method string) (caller, func() error, error) {
	connection, err := dial(socket)
	if err != nil {
		return nil, nil, err
	}
	call, err := callOf(connection, method)
	if err != nil {
		return nil, nil, err
	}
	for i := 0; i < warmUpCalls; i++ {
		if err := call(context.Background()); err != nil {
			return nil, nil, fmt.Errorf("%s on %s: %w", method, socket, err)
		}
	}
	return call, connection.Close, nil
}

func callOf(connection *grpc.ClientConn, method string) (caller, error) {
	runtimeService := runtime.NewRuntimeServiceClient(connection)
	imageService := runtime.NewImageServiceClient(connection)
	calls := map[string]caller{
		"Version": func(ctx context.Context) error {
			_, err := runtimeService.Version(ctx, &runtime.VersionRequest{Version: "0.1.0"})
			return err
		},
		"Status": func(ctx context.Context) error {
			_, err := runtimeService.Status(ctx, &runtime.StatusRequest{})
			return err
		},
		"ListPodSandbox": func(ctx context.Context) error {
			_, err := runtimeService.ListPodSandbox(ctx, &runtime.ListPodSandboxRequest{})
			return err
		},
		"ListContainers": func(ctx context.Context) error {
			_, err := runtimeService.ListContainers(ctx, &runtime.ListContainersRequest{})
			return err
		},
		"ListImages": func(ctx context.Context) error {
			_, err := imageService.ListImages(ctx, &runtime.ListImagesRequest{})
			return err
		},
	}
	call, known := calls[method]
	if !known {
		return nil, fmt.Errorf("-method: unknown: %q", method)
	}
	return func(ctx context.Context) error {
		limited, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return call(limited)
	}, nil
}
