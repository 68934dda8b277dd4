// Command cri-decode-gogo decodes CRI messages with gogo/protobuf, as containerd 1.6 does, in runtime.v1 and
// runtime.v1alpha2. Input and output are those of cri-decode, except that map entries in "bytes" have no fixed order.
package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"reflect"
	"strings"

	"github.com/gogo/protobuf/jsonpb"
	"github.com/gogo/protobuf/proto"
	_ "k8s.io/cri-api/pkg/apis/runtime/v1"
	_ "k8s.io/cri-api/pkg/apis/runtime/v1alpha2"
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
	kind := proto.MessageType(name)
	if kind == nil {
		return answer{}, fmt.Errorf("%s: not found", name)
	}
	message, ok := reflect.New(kind.Elem()).Interface().(proto.Message)
	if !ok {
		return answer{}, fmt.Errorf("%s: not a message", name)
	}
	if err := proto.Unmarshal(wire, message); err != nil {
		return answer{}, err
	}
	text, err = (&jsonpb.Marshaler{OrigName: true}).MarshalToString(message)
	if err != nil {
		return answer{}, err
	}
	encoded, err := proto.Marshal(message)
	return answer{JSON: json.RawMessage(text), Bytes: encoded}, err
}
