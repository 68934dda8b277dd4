// http2-backend answers every request with 200 and a short body, over HTTP/2 with prior knowledge, on a unix socket and
// on a TCP address. Its server, golang.org/x/net's, is strict, and is not the one that gRPC brings along.
//
// usage: http2-backend SOCKET ADDRESS
package main

import (
	"io"
	"log"
	"net"
	"net/http"
	"os"

	"golang.org/x/net/http2"
)

func answer(writer http.ResponseWriter, request *http.Request) {
	io.Copy(io.Discard, request.Body)
	writer.Header().Set("content-type", "text/plain")
	io.WriteString(writer, "answered\n")
}

func serve(network, address string) {
	listener, err := net.Listen(network, address)
	if err != nil {
		log.Fatal(err)
	}
	// h2spec fills a frame of the largest size without a look at its windows, and the proxy grants 65,535 bytes.
	server := &http2.Server{MaxReadFrameSize: 1 << 14}
	quiet := &http.Server{ErrorLog: log.New(io.Discard, "", 0)}
	for {
		connection, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go server.ServeConn(connection, &http2.ServeConnOpts{Handler: http.HandlerFunc(answer), BaseConfig: quiet})
	}
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: http2-backend SOCKET ADDRESS")
	}
	go serve("unix", os.Args[1])
	serve("tcp", os.Args[2])
}
