package segment

import (
	"context"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"math/rand/v2"

	"golang.org/x/image/draw"
)

// imageSide is in pixels. 128x128 in RGBA are 64 KiB.
const imageSide = 128

// randomImage is opaque: gradients with a random slope and offset, so that it
// looks smooth to a filter and to JPEG, as photographs do.
func randomImage(r *rand.Rand) *image.RGBA {
	m := image.NewRGBA(image.Rect(0, 0, imageSide, imageSide))
	dx := 1 + r.IntN(4)
	dy := 1 + r.IntN(4)
	offset := r.IntN(256)
	for y := range imageSide {
		row := m.Pix[y*m.Stride : y*m.Stride+4*imageSide]
		for x := range imageSide {
			row[4*x] = uint8(offset + dx*x)
			row[4*x+1] = uint8(offset + dy*y)
			row[4*x+2] = uint8(dx*x + dy*y)
			row[4*x+3] = 255
		}
	}
	return m
}

func runResize(ctx context.Context, r *rand.Rand, size int) error {
	return each(ctx, size, func() error {
		halved(randomImage(r))
		return nil
	})
}

// halved returns the image at half its width and height. When shrinking, the
// bilinear filter weighs the pixels within two of the new pixel's middle.
func halved(m *image.RGBA) *image.RGBA {
	small := image.NewRGBA(image.Rect(0, 0, m.Rect.Dx()/2, m.Rect.Dy()/2))
	draw.BiLinear.Scale(small, small.Rect, m, m.Rect, draw.Src, nil)
	return small
}

func runRotate(ctx context.Context, r *rand.Rand, size int) error {
	return each(ctx, size, func() error {
		rotated(randomImage(r))
		return nil
	})
}

// rotated returns the image turned by 90 degrees, clockwise. The image must
// begin at (0, 0).
func rotated(m *image.RGBA) *image.RGBA {
	width, height := m.Rect.Dx(), m.Rect.Dy()
	turned := image.NewRGBA(image.Rect(0, 0, height, width))
	for y := range height {
		for x := range width {
			from, to := y*m.Stride+4*x, x*turned.Stride+4*(height-1-y)
			copy(turned.Pix[to:to+4], m.Pix[from:from+4])
		}
	}
	return turned
}

func runJPEG(ctx context.Context, r *rand.Rand, size int) error {
	return each(ctx, size, func() error {
		return writeJPEG(io.Discard, randomImage(r))
	})
}

func writeJPEG(w io.Writer, m image.Image) error {
	if err := jpeg.Encode(w, m, &jpeg.Options{Quality: 80}); err != nil {
		return fmt.Errorf("encoding an image of %v pixels: %w", m.Bounds().Size(), err)
	}
	return nil
}
