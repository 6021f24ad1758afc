#!/bin/sh
# Renders clip.h264: one second of H.264 (24 frames, 2048x2048, 20 kB). Needs ffmpeg with libx264.
# The sequence parameter set in mp4.go repeats what this command chooses.
cd "$(dirname "$0")" && exec ffmpeg -v error -y \
  -f lavfi -i "gradients=s=16x32:d=1:r=24:speed=0.00001:c0=0x205090:c1=0xf0b070:n=2:x0=0:y0=0:x1=0:y1=31,scale=2048:2048:flags=neighbor" \
  -f lavfi -i "color=c=white:s=16x16:r=24:d=1" -f lavfi -i "color=c=0xf0f0e0:s=128x128:r=24:d=1" \
  -filter_complex "[0][1]overlay=x='2*n':y=16[a];[a][2]overlay=x='64+16*n':y=128" -frames:v 24 \
  -pix_fmt yuv420p -c:v libx264 -profile:v baseline -preset veryslow -crf 30 -g 24 -bf 0 -threads 1 \
  -x264-params "scenecut=0:ref=1:weightp=0:slices=1:mbtree=0" -bsf:v "filter_units=remove_types=6" -f h264 clip.h264
