// Command cri-decode decodes CRI messages with golang/protobuf, as containerd 2.x and kubelet do.
//
// Each line of stdin is a full message name and the message in base64: "runtime.v1.VersionRequest CgUwLjEuMA==".
// Each line of stdout is a JSON object: "json" is the message by proto field names, defaults left out; "bytes" the
// deterministic encoding of the message without its unknown fields; or "error" alone.
package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	_ "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const maxLineBytes = 64 << 20

type answer struct {
	JSON  json.RawMessage `json:"json,omitempty"`
	Bytes []byte          `json:"bytes"`
	Error string          `json:"error,omitempty"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, maxLineBytes)
	output := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		result, err := decode(lines.Text())
		if err != nil {
			result = answer{Error: err.Error()}
		}
		if err := output.Encode(result); err != nil {
			log.Fatal(err)
		}
	}
	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}
}

func decode(line string) (answer, error) {
	name, text, _ := strings.Cut(line, " ")
	wire, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return answer{}, err
	}
	kind, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	if err != nil {
		return answer{}, fmt.Errorf("%s: %w", name, err)
	}
	message := kind.New().Interface()
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(wire, message); err != nil {
		return answer{}, err
	}
	spaced, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(message)
	if err != nil {
		return answer{}, err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, spaced); err != nil {
		return answer{}, err
	}
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	return answer{JSON: compact.Bytes(), Bytes: encoded}, err
}
