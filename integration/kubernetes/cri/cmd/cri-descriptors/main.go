// Command cri-descriptors writes the FileDescriptorSet of CRI's runtime.v1 to stdout, files after those that they import,
// so that a test in any language can make every message of it.
package main

import (
	"log"
	"os"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func main() {
	set := &descriptorpb.FileDescriptorSet{}
	add(set, runtime.File_staging_src_k8s_io_cri_api_pkg_apis_runtime_v1_api_proto, map[string]bool{})
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(set)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := os.Stdout.Write(encoded); err != nil {
		log.Fatal(err)
	}
}

func add(set *descriptorpb.FileDescriptorSet, file protoreflect.FileDescriptor, seen map[string]bool) {
	if seen[file.Path()] {
		return
	}
	seen[file.Path()] = true
	imports := file.Imports()
	for i := 0; i < imports.Len(); i++ {
		add(set, imports.Get(i).FileDescriptor, seen)
	}
	set.File = append(set.File, protodesc.ToFileDescriptorProto(file))
}
